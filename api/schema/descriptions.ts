/**
 * Reads the descriptions of types and fields from the declarations of the client package. This is slow, so a file is read on
 * first use.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { capitalized } from '../meta/capitalized.ts';

interface Texts {
  readonly type: string | undefined;
  readonly fields: ReadonlyMap<string, string>;
}

const NONE: Texts = { type: undefined, fields: new Map() };
const cache = new Map<string, Texts>();
let folder: string | undefined;

/** Returns the description of a built-in type or field, or `undefined` if there is none. */
export function describe(structName: string, fieldName?: string): string | undefined {
  let texts = cache.get(structName);
  if (texts === undefined) {
    texts = read(structName);
    cache.set(structName, texts);
  }
  return fieldName === undefined ? texts.type : texts.fields.get(fieldName);
}

function read(structName: string): Texts {
  if (!structName.startsWith('io.k8s.')) return NONE;
  folder ??= modelsFolder();
  for (const name of modelNames(structName)) {
    const file = join(folder, `${name}.d.ts`);
    if (existsSync(file)) return parse(readFileSync(file, 'utf8'), PARAGRAPHS.test(structName));
  }
  return NONE;
}

/** The types in whose declarations two blanks stand for the empty line between paragraphs. In others they are two blanks. */
const PARAGRAPHS =
  /^io\.k8s\.(?:api\.(?:admissionregistration|apps|certificates|resource|storage)\.|apimachinery\.pkg\.apis\.meta\.v1\.ObjectMeta$)/;

/** A field of one paragraph, which contains two blanks. */
const ONE_PARAGRAPH = 'finalizers';

function modelsFolder(): string {
  // A bundled program has the declarations in a folder beside it (scripts/program-bundle.ts).
  const beside = join(import.meta.dirname, 'models');
  if (existsSync(beside)) return beside;
  // Resolving the path does not load the package.
  return join(dirname(createRequire(import.meta.url).resolve('@kubernetes/client-node')), 'gen', 'models');
}

/**
 * Returns the possible class names in the order of the search: `CoreV1Event` before `V1Event`. A class has the name of its
 * group only if two groups have a type of the same name.
 */
export function modelNames(structName: string): string[] {
  const parts = structName.split('.');
  const kind = parts.pop() ?? '';
  const version = capitalized(parts.pop() ?? '');
  const group = capitalized(parts.pop() ?? '');
  return [`${group}${version}${kind}`, `${version}${kind}`];
}

const DECLARATION = /\/\*\*\n((?:[ \t]*\*(?!\/).*\n)*)[ \t]*\*\/\n(?:export declare class \w+|[ \t]*'([^']+)'\??:)/g;

function parse(source: string, hasParagraphs: boolean): Texts {
  const fields = new Map<string, string>();
  let type: string | undefined;
  for (const [, comment = '', field] of source.matchAll(DECLARATION)) {
    const text = comment
      .split('\n')
      .map((line) => line.replace(/^[ \t]*\*[ ]?/, ''))
      .join('\n')
      .trim()
      .replaceAll(/\\(['"\\])/g, '$1')
      // The generator keeps comments from beginning and ending within a text.
      .replaceAll('*_/', '*/')
      .replaceAll('/_*', '/*');
    const shown = hasParagraphs && field !== ONE_PARAGRAPH ? text.replaceAll('  ', '\n\n') : text;
    if (field === undefined) type = shown;
    else fields.set(nameOf(field), shown);
  }
  return { type, fields };
}

/** Returns the name of a field in JSON. The generator changes those that are words of the language or contain dashes. */
function nameOf(field: string): string {
  return field.startsWith('x_kubernetes_') ? field.replaceAll('_', '-') : field.replace(/^_/, '');
}
