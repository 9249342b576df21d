/**
 * Owns the ConfigMaps and Secrets of the folder of static pods. The file source replaces the whole set with each scan;
 * listeners get the keys of the changed objects. `volumes/pod-objects.ts` serves the objects to the pods of the same folder,
 * and to no others.
 */
import { createHash } from 'node:crypto';
import { PlainError } from '../../api/component/plain-error.ts';
import { configKeyErrors, dnsLabelErrors, dnsSubdomainErrors } from '../../api/meta/names.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { decodeStruct } from '../../api/schema/decode.ts';
import { loadSchema } from '../../api/schema/table.ts';

/** The limit of the API for all decoded values of an object together. */
const MAX_BYTES = 1024 * 1024;
const MAX_OBJECTS = 1000;
const KINDS: readonly string[] = ['ConfigMap', 'Secret'];

/** The key of an object: `KIND/NAMESPACE/NAME`. */
export type StaticObjectKey = string;

/** Returns the key of an object of the folder. */
export function staticObjectKey(kind: 'ConfigMap' | 'Secret', namespace: string, name: string): StaticObjectKey {
  return `${kind}/${namespace}/${name}`;
}

/** An object with its key. */
export interface StaticObject {
  readonly key: StaticObjectKey;
  readonly object: KubeObject;
}

/** Whether the value of a document is an object that static pods may use. */
export function isStaticObject(value: unknown): boolean {
  return KINDS.includes(String((value as { kind?: unknown } | null)?.kind));
}

/** Reads a ConfigMap or Secret of the folder of static pods. Throws an error that names the fault. */
export function readStaticObject(value: unknown): StaticObject {
  const document = value as { readonly apiVersion?: unknown; readonly kind: 'ConfigMap' | 'Secret' };
  if ((document.apiVersion ?? 'v1') !== 'v1') throw new PlainError(`a ${document.kind} has the apiVersion v1`);
  const struct = loadSchema().kind('', 'v1', document.kind);
  if (struct === undefined) throw new Error(`the schema has no ${document.kind}`);
  const decoded = decodeStruct(struct, value).value as unknown as KubeObject & {
    readonly data?: Readonly<Record<string, string>>;
    readonly binaryData?: Readonly<Record<string, string>>;
    readonly stringData?: Readonly<Record<string, string>>;
  };
  const { name = '', namespace: stated = '' } = decoded.metadata ?? {};
  const namespace = stated === '' ? 'default' : stated;
  const text = Object.entries(decoded.stringData ?? {}).map(([key, content]) => [
    key,
    Buffer.from(content).toString('base64'),
  ]);
  const data = { ...decoded.data, ...Object.fromEntries(text) };
  const values: Readonly<Record<string, string>> = { ...data, ...decoded.binaryData };
  const faults = [
    ...dnsSubdomainErrors(name).map((fault) => `metadata.name: ${quoteText(name)}: ${fault}`),
    ...dnsLabelErrors(namespace).map((fault) => `metadata.namespace: ${quoteText(namespace)}: ${fault}`),
    ...Object.keys(values).flatMap((key) => configKeyErrors(key).map((fault) => `data: ${quoteText(key)}: ${fault}`)),
  ];
  const [first] = faults;
  if (first !== undefined) throw new PlainError(`invalid ${document.kind}: ${first}`);
  const sizeOf = (contents: Readonly<Record<string, string>> = {}, encoding: 'utf8' | 'base64' = 'base64'): number =>
    Object.values(contents).reduce((sum, content) => sum + Buffer.byteLength(content, encoding), 0);
  const size = sizeOf(data, document.kind === 'Secret' ? 'base64' : 'utf8') + sizeOf(decoded.binaryData);
  if (size > MAX_BYTES) throw new PlainError(`invalid ${document.kind}: ${name} has more than ${MAX_BYTES} bytes`);
  const digest = createHash('sha256')
    .update(JSON.stringify([data, decoded.binaryData]))
    .digest('hex')
    .slice(0, 32);
  const { stringData: _text, ...fields } = decoded;
  const metadata = { ...decoded.metadata, name, namespace, uid: digest, resourceVersion: digest };
  const object = { ...fields, metadata, data } as KubeObject;
  return { key: staticObjectKey(document.kind, namespace, name), object };
}

/** Owns the objects of the folder. Listeners are called synchronously. */
export class StaticObjects {
  #objects: ReadonlyMap<StaticObjectKey, KubeObject> = new Map();
  readonly #listeners: ((changed: ReadonlySet<StaticObjectKey>) => void)[] = [];

  /** Registers a listener that gets the keys of objects that were added, changed or removed. */
  onChange(listener: (changed: ReadonlySet<StaticObjectKey>) => void): void {
    this.#listeners.push(listener);
  }

  get(key: StaticObjectKey): KubeObject | undefined {
    return this.#objects.get(key);
  }

  /** Replaces all objects. Returns the keys of those that are left out, because the folder has too many objects. */
  replace(objects: readonly StaticObject[]): readonly StaticObjectKey[] {
    const next = new Map(objects.slice(0, MAX_OBJECTS).map(({ key, object }) => [key, object]));
    const version = (map: ReadonlyMap<StaticObjectKey, KubeObject>, key: StaticObjectKey): string | undefined =>
      map.get(key)?.metadata.resourceVersion;
    const keys = new Set([...next.keys(), ...this.#objects.keys()]).values();
    const changed = new Set(keys.filter((key) => version(next, key) !== version(this.#objects, key)));
    this.#objects = next;
    if (changed.size > 0) for (const listener of this.#listeners) listener(changed);
    return objects.slice(MAX_OBJECTS).map(({ key }) => key);
  }
}
