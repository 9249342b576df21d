/**
 * Copies all objects of a control plane between the storage of this project and an etcd cluster in kube-apiserver's layout,
 * with digests by which the caller compares both. Nothing else may write meanwhile.
 */
import { createHash } from 'node:crypto';
import { stringifyJson } from '../../../api/codec/json.ts';
import { PlainError } from '../../../api/component/plain-error.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { parseObject } from '../object-bytes.ts';
import type { SalvagedRow } from '../sqlite/salvage-rows.ts';
import type { Storage } from '../storage.ts';
import type { ValueTransformer } from '../value-transformer.ts';
import type { EtcdClient, EtcdKeyValue } from './etcd-client.ts';
import type { EtcdValueLayout } from './etcd-reader.ts';
import { type EtcdKeys, isServerState } from './keys.ts';

/** The error of a copy that cannot be made. The message is for the operator. */
class TransferError extends PlainError {
  override readonly name = 'TransferError';
}

/** An etcd cluster, and the form of the keys and values in it. */
export interface EtcdLayout extends EtcdValueLayout {
  readonly etcd: EtcdClient;
  /** Called with a line about the progress after each thousand objects, and while the revision of etcd is counted up. */
  progress(line: string): void;
}

/** What was copied, for the comparison of both sides. */
export interface Contents {
  readonly objects: number;
  /** The digest of the keys and objects in the order of the keys, without resource versions. */
  readonly digest: string;
}

const LIST_PAGE = 500;
/** The number of objects that are written at the same time. */
const WRITERS = 64;
/** How long kube-apiserver keeps events by default (`--event-ttl`). */
const EVENT_SECONDS = 3600;
const EVENTS = '/core/events/';
/** The number of objects after which the progress is reported. */
const PROGRESS_EVERY = 1000;
/** The number of empty writes after which the history of etcd is compacted, so that it does not grow. */
const COUNTED_AT_A_TIME = 50_000;
/** The number of empty writes at the same time. */
const COUNTERS = 256;

/** Returns the digest of the objects of the storage. */
export async function contentsOf(storage: Storage): Promise<Contents> {
  const digest = new Digest();
  for await (const { key, value } of itemsOf(storage)) digest.add(key, value);
  return digest.result();
}

interface Copied extends Contents {
  /** How far the revision of etcd is below the newest revision of the storage. 0 if it is not below. */
  readonly missingRevisions: number;
}

/**
 * Writes all objects to etcd, which must have no key below the prefix. With `countsUp`, empty writes then raise the revision of
 * etcd to that of the storage, because a client that still holds a larger one would miss changes. Throws `TransferError` if
 * there are keys below the prefix, and `EtcdError` if etcd refuses a write.
 */
export async function copyToEtcd(
  storage: Storage,
  layout: EtcdLayout,
  { countsUp }: { readonly countsUp: boolean },
): Promise<Copied> {
  const { etcd, keys, values, transformer, progress } = layout;
  for await (const page of etcd.pages(`${layout.prefix}/`)) {
    const [first] = page;
    if (first !== undefined)
      throw new TransferError(`${etcd.endpoint} has keys below ${layout.prefix}/ already, such as ${first.key}`);
  }
  const lease = await etcd.grant(EVENT_SECONDS);
  let done = 0;
  const items = itemsOf(storage);
  await inParallel(WRITERS, async () => {
    const { value: item, done: isLast } = await items.next();
    if (isLast === true) return false;
    const key = keys.toEtcd(item.key);
    const value = transformer.seal(item.key, values.toEtcd(item.value), key);
    await etcd.create(key, value, item.key.startsWith(EVENTS) ? lease : 0);
    done += 1;
    if (done % PROGRESS_EVERY === 0) progress(objectsCopied(done));
    return true;
  });
  if (countsUp) await countUp(layout, storage.revision());
  return {
    ...(await contentsInEtcd(layout)),
    missingRevisions: Math.max(0, storage.revision() - (await etcd.revision())),
  };
}

const objectsCopied = (done: number): string => `${done} objects copied`;

/** Counts the revision of etcd up by empty writes, and drops its history. Does nothing if `revision` is reached already. */
async function countUp({ etcd, progress }: EtcdLayout, revision: number): Promise<void> {
  const key = 'orchlet/migration';
  let newest = await etcd.revision();
  if (newest >= revision) return;
  const first = newest;
  while (newest < revision) {
    const next = Math.min(revision, newest + COUNTED_AT_A_TIME);
    await inParallel(COUNTERS, async () => {
      if (newest >= next) return false;
      newest = Math.max(newest, await etcd.put(key, Buffer.alloc(0)));
      return true;
    });
    if (newest < revision) {
      await etcd.compact(newest);
      progress(`revision of etcd counted up, ${newest - first} of ${revision - first}`);
    }
  }
  await etcd.deleteBelow(key);
  await etcd.compact(await etcd.revision());
}

/**
 * Returns the digest of the objects in etcd. The state of running servers (allocations, addresses) is left out. Throws
 * `TransferError` for a key or a value that cannot be read.
 */
export async function contentsInEtcd(layout: EtcdLayout): Promise<Contents> {
  const digest = new Digest();
  for await (const { key, value } of objectsIn(layout)) digest.add(key, value);
  return digest.result();
}

interface EtcdRows {
  readonly rows: readonly SalvagedRow[];
  readonly contents: Contents;
  readonly lastRevision: number;
}

/**
 * Reads all objects of etcd as records of the storage, each with its own revision, and encrypts them with `target`. Those with
 * a lease (events) expire an hour after `nowMs`. Throws `TransferError` for a key or a value that cannot be read.
 */
export async function rowsFromEtcd(layout: EtcdLayout, target: ValueTransformer, nowMs: number): Promise<EtcdRows> {
  const digest = new Digest();
  const rows: SalvagedRow[] = [];
  for await (const { key, value, entry } of objectsIn(layout)) {
    digest.add(key, value);
    rows.push({
      revision: entry.modRevision,
      key,
      value: target.seal(key, value),
      created: entry.createRevision,
      expires: entry.isLeased ? nowMs + EVENT_SECONDS * 1000 : 0,
    });
    if (rows.length % PROGRESS_EVERY === 0) layout.progress(objectsCopied(rows.length));
  }
  rows.sort((a, b) => a.revision - b.revision);
  const ownRows = withOwnRevisions(rows);
  return {
    rows: ownRows,
    contents: digest.result(),
    lastRevision: Math.max(await layout.etcd.revision(), ownRows.at(-1)?.revision ?? 0),
  };
}

/** Gives each write a revision of its own. A transaction of etcd may write several keys with one revision. */
function withOwnRevisions(rows: readonly SalvagedRow[]): SalvagedRow[] {
  let last = 0;
  return rows.map((row) => {
    last = Math.max(last + 1, row.revision);
    return last === row.revision ? row : { ...row, revision: last };
  });
}

async function* objectsIn({ etcd, prefix, keys, values, transformer }: EtcdLayout): AsyncGenerator<{
  readonly key: string;
  readonly value: Buffer;
  readonly entry: EtcdKeyValue;
}> {
  for await (const page of etcd.pages(`${prefix}/`)) {
    const found = page.flatMap((entry) => {
      const key = keyOf(entry.key, keys);
      return key === undefined ? [] : [{ key, entry }];
    });
    await transformer.unlock(found.map(({ key, entry }) => ({ key, value: entry.value })));
    for (const { key, entry } of found) {
      try {
        yield { key, value: values.fromEtcd(transformer.open(key, entry.value, entry.key)), entry };
      } catch (error) {
        throw unreadable(entry.key, error);
      }
    }
  }
}

function keyOf(etcdKey: string, keys: EtcdKeys): string | undefined {
  try {
    const key = keys.fromEtcd(etcdKey);
    return key !== undefined && isServerState(key) ? undefined : key;
  } catch (error) {
    throw unreadable(etcdKey, error);
  }
}

function unreadable(key: string, error: unknown): TransferError {
  const why = errorMessage(error);
  return new TransferError(why.includes(key) ? why : `${key} cannot be read: ${why}`, { cause: error });
}

async function* itemsOf(storage: Storage): AsyncGenerator<{ readonly key: string; readonly value: Buffer }, undefined> {
  for (let startAfter = ''; ;) {
    const { items, remaining } = await storage.list('/', { limit: LIST_PAGE, startAfter });
    yield* items;
    startAfter = items.at(-1)?.key ?? startAfter;
    if (remaining === 0) return undefined;
  }
}

/**
 * Calls `step` repeatedly, `width` calls at a time, until it resolves to `false`. After a failure, no further call is made,
 * and the promise rejects with the first failure when all running calls have ended.
 */
async function inParallel(width: number, step: () => Promise<boolean>): Promise<void> {
  const failures: unknown[] = [];
  const repeat = async (): Promise<void> => {
    try {
      while (failures.length === 0 && (await step()));
    } catch (error) {
      failures.push(error);
    }
  };
  await Promise.all(Array.from({ length: width }, repeat));
  if (failures.length > 0) throw failures[0];
}

/** Each storage has its own order of keys and members, so both are sorted before they are compared. */
class Digest {
  readonly #objects: (readonly [key: string, digest: string])[] = [];

  add(key: string, value: Buffer): void {
    const object = parseObject(value);
    delete object.metadata.resourceVersion;
    this.#objects.push([key, createHash('sha256').update(sortedText(object)).digest('hex')]);
  }

  result(): Contents {
    const hash = createHash('sha256');
    for (const [key, digest] of this.#objects.toSorted(([a], [b]) => (a < b ? -1 : 1)))
      hash.update(`${key} ${digest}\n`);
    return { objects: this.#objects.length, digest: hash.digest('hex') };
  }
}

function sortedText(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(sortedText).join()}]`;
  if (typeof value !== 'object' || value === null) return stringifyJson(value);
  const members = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${stringifyJson(key)}:${sortedText(member)}`).join()}}`;
}
