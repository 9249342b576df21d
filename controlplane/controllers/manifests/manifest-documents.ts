/**
 * Reads the objects of a manifest: YAML documents, or one JSON value. Each document is parsed by itself, so that one that is
 * broken hides no other, and with a turn of the event loop in between.
 */
import { lineIndexOf } from '../../../api/codec/field-lines.ts';
import { parseJson } from '../../../api/codec/json.ts';
import type { YamlParser } from '../../../api/codec/yaml-thread.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { type GroupVersion, type KubeObject, parseApiVersion } from '../../../api/meta/object.ts';
import { quoteText } from '../../../api/meta/quote.ts';

/** An object with what identifies it. Its kind may be unknown to the server. */
export interface ManifestDocument extends GroupVersion {
  readonly kind: string;
  readonly name: string;
  /** The namespace that the manifest names. Empty if it names no namespace. */
  readonly namespace: string;
  readonly object: KubeObject;
  /** The line of the file at which the document begins. */
  readonly line: number;
  readonly text: string;
}

/** A part of a manifest that cannot be applied. */
export interface ManifestFault {
  /** The line of the fault; 0 if the fault is one of the whole file. */
  readonly line: number;
  readonly message: string;
}

/** The objects and the faults of a manifest. */
interface ReadManifest {
  readonly documents: readonly ManifestDocument[];
  readonly faults: readonly ManifestFault[];
}

/** The maximum number of objects of a file. */
const MAX_DOCUMENTS = 1_000;
/** The maximum number of faults, at which reading ends. */
const MAX_FAULTS = 100;
/** The API refuses larger objects. */
const MAX_DOCUMENT_CHARACTERS = 3 * 1024 * 1024;

interface ReadOptions {
  readonly isJson: boolean;
  readonly yaml: Pick<YamlParser, 'first'>;
  /** Awaited before each document. */
  readonly turn: () => Promise<void> | undefined;
}

/** Resolves to the objects of a manifest and its faults. Never rejects because of the content. */
export async function readDocuments(content: Uint8Array, options: ReadOptions): Promise<ReadManifest> {
  const { isJson, turn } = options;
  const documents: ManifestDocument[] = [];
  const faults: ManifestFault[] = [];
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(content);
  } catch {
    // The decoder's message does not say more.
    return { documents, faults: [{ line: 0, message: 'The file is not UTF-8 text' }] };
  }
  for (const { text: part, line } of isJson ? [{ text, line: 1 }] : splitDocuments(text)) {
    if (faults.length >= MAX_FAULTS) break;
    await turn();
    try {
      const objects = (await objectsOf(part, options)).map((object) => ({ ...identify(object), line, text: part }));
      if (documents.length + objects.length > MAX_DOCUMENTS)
        throw new Error(`A file may have ${MAX_DOCUMENTS} objects; these are not applied`);
      documents.push(...objects);
    } catch (error) {
      faults.push(faultOf(error, line));
    }
  }
  return { documents, faults };
}

interface Part {
  readonly text: string;
  readonly line: number;
}

/** Splits at the lines that mark documents. Parts of blank lines and comments are left out. */
export function splitDocuments(text: string): readonly Part[] {
  const parts: Part[] = [];
  let from = 0;
  let line = 1;
  let fromLine = 1;
  const end = (to: number): void => {
    const part = text.slice(from, to);
    if (/^(?!---[^\S\n]*$|[^\S\n]*(?:#|$))/m.test(part)) parts.push({ text: part, line: fromLine });
    from = to;
    fromLine = line;
  };
  for (let at = 0; at < text.length; line += 1) {
    if (at > from && text.startsWith('---', at) && /^(?:\s|$)/.test(text.slice(at + 3, at + 4))) end(at);
    const next = text.indexOf('\n', at);
    at = next < 0 ? text.length : next + 1;
  }
  end(text.length);
  return parts;
}

async function objectsOf(text: string, { isJson, yaml }: ReadOptions): Promise<readonly unknown[]> {
  if (text.length > MAX_DOCUMENT_CHARACTERS) throw new Error('The document is larger than an object can be');
  const { value, duplicates } = isJson ? parseJson(text) : await yaml.first(Buffer.from(text));
  if (duplicates.length > 0) throw new Error(duplicates.join('; '));
  if (value === null) return [];
  const { kind, items } = value as { readonly kind?: unknown; readonly items?: unknown };
  const isList = typeof kind === 'string' && kind.endsWith('List') && Array.isArray(items);
  return isList ? (items as readonly unknown[]) : [value];
}

/** Throws if the value cannot be an object of the API. */
function identify(value: unknown): Omit<ManifestDocument, 'line' | 'text'> {
  const { apiVersion, kind, metadata } = asRecord(value, 'A document must be an object');
  if (typeof apiVersion !== 'string' || apiVersion === '') throw new Error('apiVersion is missing');
  const gv = parseApiVersion(apiVersion);
  if (gv === undefined) throw new Error(`${quoteText(apiVersion)} is no apiVersion`);
  if (typeof kind !== 'string' || kind === '') throw new Error('kind is missing');
  const { name, namespace = '' } = asRecord(metadata, 'metadata is missing');
  if (typeof name !== 'string' || name === '') throw new Error('metadata.name is missing');
  if (typeof namespace !== 'string') throw new Error('metadata.namespace is not a text');
  return { ...gv, kind, name, namespace, object: value as KubeObject };
}

function asRecord(value: unknown, message: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(message);
  return value as Readonly<Record<string, unknown>>;
}

/** Returns the fault of a document with its line in the file. Parsers count lines from the beginning of the document. */
function faultOf(error: unknown, line: number): ManifestFault {
  const message = errorMessage(error);
  const within = /\bline (\d+):\s*/.exec(message);
  if (within === null) return { line, message };
  return { line: line + Number(within[1]) - 1, message: message.replace(within[0], '') };
}

/** Returns the number of the line that has the field, or of the first line of the document if the field is not found. */
export function lineOfField({ line, text }: ManifestDocument, field: string | undefined): number {
  return field === undefined ? line : line + Math.max(0, lineIndexOf(text.split('\n'), field));
}

/** Returns the rank in which objects are applied: what others need comes first, and what may refuse others comes last. */
export function rankOf({ group, kind }: ManifestDocument): number {
  if (group === '' && kind === 'Namespace') return 0;
  if (group === 'apiextensions.k8s.io') return 1;
  if (kind.endsWith('WebhookConfiguration') || kind.endsWith('PolicyBinding') || kind === 'APIService') return 4;
  return WORKLOADS.has(kind) ? 3 : 2;
}

const WORKLOADS: ReadonlySet<string> = new Set([
  'Pod',
  'ReplicationController',
  'ReplicaSet',
  'Deployment',
  'StatefulSet',
  'DaemonSet',
  'Job',
  'CronJob',
]);
