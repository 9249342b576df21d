/**
 * Applies the manifests of folders of this host, and removes what leaves them. The folder is the source of truth for the fields
 * that its manifests name: they are applied when a file changes, at the start and every ten minutes.
 */
import { createHash } from 'node:crypto';
import type { YamlParser } from '../../../api/codec/yaml-thread.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import { backoffDelay } from '../../../api/machinery/backoff.ts';
import type { Client, Resource } from '../../../api/client/client.ts';
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import type { EventRecorder } from '../../../api/client/event-report.ts';
import type { LoopTurns } from '../../../api/machinery/loop-turns.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { isStatusError } from '../../../api/meta/status-error.ts';
import type { ResourceCatalog } from '../../model/rest.ts';
import { FolderWatch } from './folder-watch.ts';
import { FileInventory, keyOf, MANIFEST_LABEL, readInventories } from './inventory.ts';
import { lineOfField, type ManifestDocument, rankOf } from './manifest-documents.ts';
import { type Fault, FaultReport } from './fault-report.ts';
import { isBelow, ManifestSources } from './manifest-sources.ts';
import { applyObject, contentOf, find, nameOf, NotYetError, pruneObject, resourceOf } from './manifest-writes.ts';

/** The folders, and what applying their manifests needs. */
interface ManifestsOptions {
  readonly folders: readonly string[];
  /** A folder whose pods are static pods of the node agent, and not applied. */
  readonly staticPodFolder: string;
  /** Differs between data directories, and stays when a backup is restored. */
  readonly installation: string;
  readonly client: Client;
  readonly catalog: ResourceCatalog;
  readonly clock: Clock;
  readonly turns: LoopTurns;
  readonly yaml: Pick<YamlParser, 'first'>;
  readonly logger: Logger;
  readonly recorder: EventRecorder;
}

/** How long notifications are gathered before a turn, because one change causes several. */
const GATHER_MS = 20;
const RESYNC_MS = 600_000;
const PRUNE_AFTER_MS = 5_000;
const RETRY = { firstMs: 1_000, longestMs: 60_000 };
/** How long an unknown kind is no fault: its definition may have been applied just now. */
const UNKNOWN_KIND_MS = 3_000;

interface Item {
  readonly path: string;
  readonly document: ManifestDocument;
  readonly hash: string;
  isDone: boolean;
  failures: number;
  failingSinceMs: number;
  retryAtMs: number;
  isUnknownKind: boolean;
  fault: Fault | undefined;
}

/** The loop that applies manifests. */
interface RunningManifests {
  /** Resolves when the last turn has finished. */
  close(): Promise<void>;
}

/** Starts the loop, whose failed turns are logged and repeated. */
export function startManifests(options: ManifestsOptions): RunningManifests {
  const manifests = new Manifests(options);
  const stop = new AbortController();
  const running = manifests.run(stop.signal);
  background(running, { logger: options.logger, what: 'Applying manifests' });
  return {
    async close() {
      stop.abort(new Error('the control plane is closed'));
      await running;
    },
  };
}

class Manifests {
  readonly #options: ManifestsOptions;
  readonly #sources: ManifestSources;
  readonly #faults: FaultReport;
  readonly #loop: WakeableLoop;
  readonly #watch: FolderWatch;
  /** Ends the calls after changes of the catalog. */
  readonly #unfollowCatalog: () => void;
  #gathering: Timer | undefined;
  #inventories: Map<string, FileInventory> | undefined;
  #items = new Map<string, Item>();
  /** The times since which keys of the inventory are in no file. */
  readonly #absent = new Map<string, number>();
  #resyncAtMs = 0;

  constructor(options: ManifestsOptions) {
    const { clock, turns, yaml, logger, folders, catalog, recorder } = options;
    this.#options = options;
    this.#sources = new ManifestSources({ folders, clock, yaml, turn: () => turns.begin() });
    this.#faults = new FaultReport(logger, recorder);
    this.#loop = new WakeableLoop({
      clock,
      onError: (error) => logger.warn({ err: error }, 'The manifests could not be applied; retrying'),
    });
    this.#watch = new FolderWatch(() => {
      this.#gathering?.cancel();
      this.#gathering = clock.after(GATHER_MS, () => this.#loop.wake());
    });
    this.#unfollowCatalog = catalog.onChange(() => {
      const waiting = [...this.#items.values()].filter((item) => item.isUnknownKind);
      for (const item of waiting) item.retryAtMs = 0;
      if (waiting.length > 0) this.#loop.wake();
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      await this.#loop.run(signal, (turnSignal) => this.#turn(turnSignal));
    } finally {
      this.#gathering?.cancel();
      this.#unfollowCatalog();
      this.#watch.close();
    }
  }

  async #turn(signal: AbortSignal): Promise<number> {
    this.#inventories ??= await readInventories(this.#options.client, this.#options.installation);
    const settleMs = await this.#sources.refresh(signal);
    const isNew = await this.#watch.follow(this.#sources.folders);
    const resyncInMs = this.#resync();
    const faults = this.#takeDocuments();
    const due = this.#due();
    await this.#recordInInventory(due);
    for (const item of due) {
      signal.throwIfAborted();
      await this.#apply(item);
    }
    const pruneInMs = await this.#prune();
    faults.push(...[...this.#items.values()].flatMap(({ fault }) => fault ?? []));
    await this.#writeInventories(faults);
    this.#faults.report(faults, (path) => this.#inventoryOf(path).reference);
    const nowMs = this.#options.clock.monotonic();
    const retries = [...this.#items.values()].filter(({ isDone }) => !isDone).map(({ retryAtMs }) => retryAtMs - nowMs);
    const delays = [settleMs, pruneInMs, resyncInMs, this.#watch.pollMs, isNew ? 0 : Infinity, ...retries];
    return Math.max(GATHER_MS, Math.min(...delays));
  }

  /** Makes everything due from time to time. Returns when the next time is. */
  #resync(): number {
    const nowMs = this.#options.clock.monotonic();
    if (nowMs >= this.#resyncAtMs) {
      this.#resyncAtMs = nowMs + RESYNC_MS;
      for (const item of this.#items.values()) if (item.failures === 0) item.isDone = false;
    }
    return this.#resyncAtMs - nowMs;
  }

  /**
   * Replaces the items by those of the files, and returns the faults of the files. Items whose content is the same keep their
   * state.
   */
  #takeDocuments(): Fault[] {
    const next = new Map<string, Item>();
    const found = [...this.#sources.unreadable].map(([path, message]): Fault => ({ path, line: 0, message }));
    for (const { source, documents, faults } of this.#sources.states) {
      this.#inventories?.get(source.path)?.takeOver();
      found.push(...faults.map((fault) => ({ path: source.path, ...fault })));
      for (const document of documents) {
        if (this.#isStaticPod(document, source.path)) continue;
        const id = this.#targetOf(document)?.key ?? keyOf(document);
        const other = next.get(id);
        if (other !== undefined) {
          const message = `${nameOf(document)} is already in ${other.path}, line ${other.document.line}`;
          found.push({ path: source.path, line: document.line, message });
          continue;
        }
        next.set(id, this.#itemOf(source.path, document, this.#items.get(id)));
      }
    }
    this.#items = next;
    return found;
  }

  #itemOf(path: string, document: ManifestDocument, former: Item | undefined): Item {
    if (former?.document === document) return former;
    const hash = createHash('sha256').update(contentOf(document)).digest('hex');
    const initialState = {
      isDone: false,
      failures: 0,
      failingSinceMs: 0,
      retryAtMs: 0,
      isUnknownKind: false,
      fault: undefined,
    };
    const state = former !== undefined && former.hash === hash && former.path === path ? former : initialState;
    return { ...state, path, document, hash };
  }

  #isStaticPod({ group, kind }: ManifestDocument, path: string): boolean {
    return group === '' && kind === 'Pod' && isBelow(path, this.#options.staticPodFolder);
  }

  #due(): readonly Item[] {
    const nowMs = this.#options.clock.monotonic();
    return [...this.#items.values()]
      .filter((item) => !item.isDone && item.retryAtMs <= nowMs)
      .toSorted((a, b) => rankOf(a.document) - rankOf(b.document));
  }

  #inventoryOf(path: string): FileInventory {
    const existing = this.#inventories?.get(path);
    if (existing !== undefined) return existing;
    const created = new FileInventory(path, this.#options.installation);
    this.#inventories?.set(path, created);
    return created;
  }

  #targetOf({ group, version, kind, name, namespace }: ManifestDocument): Target | undefined {
    const resource = resourceOf(this.#options.catalog, { group, version, kind });
    if (resource === undefined) return undefined;
    const ownNamespace = resource.namespaced ? namespace || 'default' : '';
    return { resource, namespace: ownNamespace, key: keyOf({ group, kind, namespace: ownNamespace, name }) };
  }

  /** Records in the inventory what is about to be created, so that a killed process leaves nothing unknown behind. */
  async #recordInInventory(due: readonly Item[]): Promise<void> {
    const { client } = this.#options;
    for (const { document, path } of due) {
      const target = this.#targetOf(document);
      const { entries } = this.#inventoryOf(path);
      if (target === undefined || entries.has(target.key)) continue;
      const other = [...(this.#inventories?.values() ?? [])].find((inventory) => inventory.entries.has(target.key));
      const live = await find(client, target.resource, target.namespace, document.name);
      const isAdopted =
        other?.entries.get(target.key)?.isAdopted ??
        (live !== undefined && live.metadata.labels?.[MANIFEST_LABEL] === undefined);
      const { group, kind, name } = document;
      entries.set(target.key, { group, kind, namespace: target.namespace, name, uid: '', isAdopted });
    }
    await this.#writeInventories([]);
  }

  async #apply(item: Item): Promise<void> {
    const { client, clock, logger } = this.#options;
    const { document, path } = item;
    const inventory = this.#inventoryOf(path);
    try {
      const target = this.#targetOf(document);
      item.isUnknownKind = target === undefined;
      if (target === undefined) throw new NotYetError(`No resource of kind ${document.kind} in this version is served`);
      const { resource, namespace, key } = target;
      const { uid, change } = await applyObject(client, document, { resource, namespace, label: inventory.name });
      const entry = inventory.entries.get(key);
      if (entry !== undefined) {
        const isAdopted = entry.isAdopted && change !== 'created';
        inventory.entries.set(key, { ...entry, uid, isAdopted });
      }
      for (const other of this.#inventories?.values() ?? []) if (other !== inventory) other.entries.delete(key);
      item.isDone = true;
      item.failures = 0;
      item.fault = undefined;
      if (change !== 'unchanged')
        logger.info(
          { file: path, line: document.line, object: nameOf({ ...document, namespace }) },
          `Manifest ${change}`,
        );
    } catch (error) {
      const nowMs = clock.monotonic();
      if (item.failures === 0) item.failingSinceMs = nowMs;
      item.failures += 1;
      item.retryAtMs = nowMs + backoffDelay(item.failures, RETRY);
      if (item.isUnknownKind && nowMs - item.failingSinceMs < UNKNOWN_KIND_MS) return;
      const field = isStatusError(error) ? error.status.details?.causes?.[0]?.field : undefined;
      item.fault = {
        path,
        line: lineOfField(document, field),
        message: `${nameOf(document)}: ${(error as Error).message}`,
      };
    }
  }

  /** Returns after how long the next object may be removed. */
  async #prune(): Promise<number> {
    const nowMs = this.#options.clock.monotonic();
    const wanted = new Set([...this.#items.values()].map(({ document }) => this.#targetOf(document)?.key));
    let nextMs = Infinity;
    for (const inventory of this.#inventories?.values() ?? []) {
      const keeps = !inventory.isOwn || this.#sources.keeps(inventory.path);
      // Objects that were applied last are deleted first.
      for (const key of [...inventory.entries.keys()].toReversed()) {
        if (wanted.has(key) || keeps) {
          this.#absent.delete(key);
          continue;
        }
        const sinceMs = this.#absent.get(key) ?? nowMs;
        this.#absent.set(key, sinceMs);
        const leftMs = sinceMs + PRUNE_AFTER_MS - nowMs;
        if (leftMs > 0) nextMs = Math.min(nextMs, leftMs);
        else if (!(await this.#remove(inventory, key))) nextMs = Math.min(nextMs, RETRY.firstMs);
        else this.#absent.delete(key);
      }
    }
    return nextMs;
  }

  /** Returns whether nothing is left to do for the entry. */
  async #remove(inventory: FileInventory, key: string): Promise<boolean> {
    const { client, catalog, logger, recorder } = this.#options;
    const entry = inventory.entries.get(key);
    if (entry === undefined) return true;
    const fields = { file: inventory.path, object: nameOf(entry) };
    try {
      const pruned = await pruneObject(client, catalog, entry, inventory.name);
      inventory.entries.delete(key);
      if (pruned === 'gone') return true;
      const message =
        pruned === 'deleted'
          ? 'Deleted an object that is no longer in the manifests'
          : 'Kept an object that is no longer in the manifests, without its label';
      logger.info(fields, message);
      recorder.event(
        inventory.reference,
        'Normal',
        pruned === 'deleted' ? 'Pruned' : 'Left',
        `${nameOf(entry)}: ${message}`,
      );
      return true;
    } catch (error) {
      logger.warn(
        { ...fields, err: error },
        'An object that is no longer in the manifests could not be deleted; retrying',
      );
      return false;
    }
  }

  /** Writes the changed inventories. Files with faults have an inventory as well, which their events name. */
  async #writeInventories(faults: readonly Fault[]): Promise<void> {
    const { client, logger } = this.#options;
    const faulty = new Set(faults.map(({ path }) => path));
    for (const path of faulty) this.#inventoryOf(path);
    for (const [path, inventory] of this.#inventories ?? []) {
      const isNeeded = inventory.entries.size > 0 || faulty.has(path);
      try {
        if (isNeeded) await inventory.write(client);
        else await inventory.remove(client);
      } catch (error) {
        if (!isStatusError(error)) throw error;
        logger.warn({ file: path, err: error }, 'The inventory of a manifest could not be written');
        continue;
      }
      if (!isNeeded) this.#inventories?.delete(path);
    }
  }
}

interface Target {
  readonly resource: Resource;
  readonly namespace: string;
  readonly key: string;
}
