/**
 * The plugin manager watches `<root-dir>/plugins_registry` for the sockets of node plugins, reads the type of each plugin and
 * passes it to the handler of this type (CSIPlugin, DevicePlugin, DRAPlugin). A plugin is deregistered when its socket is
 * removed or recreated. A failed registration is retried with growing delays.
 *
 * Each socket has one operation at a time. Sockets can be in sub-directories. Names that begin with a dot are ignored.
 */
import { type FSWatcher, watch } from 'node:fs';
import { mkdir, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff, backoffDelay } from '../../../api/machinery/backoff.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { connectGrpc } from '../../../api/grpc/grpc-client.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { REGISTRATION_MESSAGES, REGISTRATION_METHODS } from './schema.ts';

type PluginType = 'CSIPlugin' | 'DevicePlugin' | 'DRAPlugin';

/** A plugin as it describes itself. */
export interface Plugin {
  readonly name: string;
  /** The path of the socket that serves the plugin's own interface. */
  readonly endpoint: string;
  readonly supportedVersions: readonly string[];
}

/** Handles plugins of one type. Errors before registration is complete are reported to the plugin, which can then exit. */
export interface PluginHandler {
  /** Throws if the plugin cannot be used. */
  validate(plugin: Plugin): void;
  register(plugin: Plugin, signal: AbortSignal): Promise<void>;
  deregister(name: string, endpoint: string): Promise<void>;
}

interface PluginManagerOptions {
  readonly rootDirectory: string;
  readonly handlers: Readonly<Partial<Record<PluginType, PluginHandler>>>;
  readonly clock: Clock;
  readonly logger: Logger;
}

interface Registration {
  /** Distinguishes a socket from a recreated one with its name. */
  readonly identity: string;
  /** The plugin whose registration has begun, and which is deregistered once the socket is gone. */
  plugin: (Plugin & { readonly handler: PluginHandler }) | undefined;
  isRegistered: boolean;
  failures: number;
  retryAtMs: number;
  busy: Promise<void> | undefined;
}

const RESCAN_MS = 5_000;
/** The delay from a change of a directory to the scan, because changes often come together. */
const SCAN_DELAY_MS = 20;
/** The timeout of `GetInfo`. The kubelet waits ten seconds for the connection and one for the response. */
const GET_INFO_TIMEOUT_MS = 11_000;
const NOTIFY_TIMEOUT_MS = 5_000;
const RETRY_MS = 500;
const MAX_RETRY_MS = 122_000;
/**
 * The maximum number of concurrent registrations. Others wait, those that failed least often first: a socket that never answers
 * holds a place for seconds.
 */
const MAX_REGISTRATIONS_AT_ONCE = 16;
/** The maximum length of the path of a socket in the kernel. No deeper directory has a usable socket. */
const MAX_SOCKET_PATH_BYTES = 107;
/** The maximum number of directories, each of which is watched. */
const MAX_DIRECTORIES = 256;

/**
 * Owns the known sockets. A registration that a handler rejects is tried again until the socket is gone. A deregistration that
 * fails is only logged.
 */
export class PluginManager {
  readonly #options: PluginManagerOptions;
  readonly #directory: string;
  readonly #sockets = new Map<string, Registration>();
  readonly #watchers = new Map<string, { readonly watcher: FSWatcher; readonly inode: number }>();
  readonly #loop: WakeableLoop;

  constructor(options: PluginManagerOptions) {
    this.#options = options;
    this.#directory = join(options.rootDirectory, 'plugins_registry');
    this.#loop = new WakeableLoop({
      clock: options.clock,
      backoff: new Backoff({ firstMs: RESCAN_MS, longestMs: RESCAN_MS }),
      onError: (error) =>
        options.logger.error({ directory: this.#directory, err: error }, 'Cannot read the plugin directory'),
    });
  }

  /** Returns the sockets that exist, and whether their plugins are registered. */
  sockets(): readonly { readonly path: string; readonly isRegistered: boolean }[] {
    return [...this.#sockets].map(([path, { isRegistered }]) => ({ path, isRegistered }));
  }

  /** Scans the directory, and watches it for changes, until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o750 });
    await this.#loop.run(signal, async () => {
      await this.#scan(signal);
      return this.#nextScanMs();
    });
    for (const { watcher } of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
    await Promise.all([...this.#sockets.values()].map((entry) => entry.busy));
  }

  #nextScanMs(): number {
    // The end of a registration wakes the loop.
    if (this.#freePlaces() === 0) return RESCAN_MS;
    const now = this.#options.clock.monotonic();
    const retries = [...this.#sockets.values()]
      .filter((entry) => !entry.isRegistered && entry.busy === undefined)
      .map((entry) => Math.max(0, entry.retryAtMs - now));
    return Math.min(RESCAN_MS, ...retries);
  }

  #freePlaces(): number {
    const busy = this.#sockets.values().reduce((sum, entry) => sum + (entry.busy === undefined ? 0 : 1), 0);
    return MAX_REGISTRATIONS_AT_ONCE - busy;
  }

  async #scan(signal: AbortSignal): Promise<void> {
    const found = await this.#socketsIn(this.#directory);
    for (const [path, entry] of this.#sockets) {
      if (found.get(path) === entry.identity || entry.busy !== undefined) continue;
      this.#sockets.delete(path);
      const { plugin } = entry;
      if (plugin === undefined) continue;
      this.#options.logger.info({ plugin: plugin.name, socket: path }, 'Deregistering a plugin');
      await plugin.handler.deregister(plugin.name, plugin.endpoint).catch((error: unknown) => {
        this.#options.logger.error({ plugin: plugin.name, err: error }, 'Cannot deregister a plugin');
      });
    }
    for (const [path, identity] of found) {
      if (this.#sockets.has(path)) continue;
      const entry = { identity, plugin: undefined, isRegistered: false, failures: 0, retryAtMs: 0, busy: undefined };
      this.#sockets.set(path, entry);
    }
    const now = this.#options.clock.monotonic();
    const due = [...this.#sockets]
      .filter(([, entry]) => !entry.isRegistered && entry.busy === undefined && entry.retryAtMs <= now)
      .toSorted(([, left], [, right]) => left.failures - right.failures);
    for (const [path, entry] of due.slice(0, this.#freePlaces())) this.#startRegistration(path, entry, signal);
  }

  #startRegistration(path: string, entry: Registration, signal: AbortSignal): void {
    const { clock, logger } = this.#options;
    entry.busy = this.#register(path, entry, signal)
      .then(
        () => {
          entry.isRegistered = true;
          logger.info({ plugin: entry.plugin?.name, socket: path }, 'Registered a plugin');
        },
        (error: unknown) => {
          if (signal.aborted) return;
          entry.failures += 1;
          const delayMs = backoffDelay(entry.failures, { firstMs: RETRY_MS, longestMs: MAX_RETRY_MS });
          entry.retryAtMs = clock.monotonic() + delayMs;
          logger.warn({ socket: path, err: error }, 'Cannot register a plugin, retrying');
        },
      )
      .finally(() => {
        entry.busy = undefined;
        this.#loop.wake();
      });
  }

  /** Registers the plugin of a socket, and notifies the plugin of the result. Rejects if either fails. */
  async #register(path: string, entry: Registration, signal: AbortSignal): Promise<void> {
    const client = await connectGrpc({
      socket: path,
      messages: REGISTRATION_MESSAGES,
      methods: REGISTRATION_METHODS,
    });
    const refuse = async (why: string): Promise<never> => {
      const error = `RegisterPlugin error -- ${why}`;
      await client.call(
        'notifyRegistrationStatus',
        { pluginRegistered: false, error },
        { timeoutMs: NOTIFY_TIMEOUT_MS, signal },
      );
      throw new Error(error);
    };
    try {
      const info = await client.call('getInfo', {}, { timeoutMs: GET_INFO_TIMEOUT_MS, signal });
      const handler = this.#handlerOf(info.type);
      if (handler === undefined)
        return await refuse(`no handler registered for plugin type: ${info.type} at socket ${path}`);
      const plugin = {
        name: info.name,
        endpoint: info.endpoint === '' ? path : info.endpoint,
        supportedVersions: info.supportedVersions,
      };
      try {
        handler.validate(plugin);
      } catch (error) {
        return await refuse(`plugin validation failed with err: ${errorMessage(error)}`);
      }
      // From here on the removal of the socket deregisters the plugin, whether or not it got the result of its registration.
      entry.plugin = { ...plugin, handler };
      try {
        await handler.register(plugin, signal);
      } catch (error) {
        return await refuse(`plugin registration failed with err: ${errorMessage(error)}`);
      }
      await client.call(
        'notifyRegistrationStatus',
        { pluginRegistered: true, error: '' },
        { timeoutMs: NOTIFY_TIMEOUT_MS, signal },
      );
    } finally {
      client.close();
    }
  }

  #handlerOf(type: string): PluginHandler | undefined {
    return new Map<string, PluginHandler>(Object.entries(this.#options.handlers)).get(type);
  }

  /** Returns the identities of sockets by path, and watches the directories that it visits. */
  async #socketsIn(root: string): Promise<Map<string, string>> {
    const sockets = new Map<string, string>();
    const directories = [root];
    // The list grows while it is walked.
    for (const directory of directories) {
      await this.#ensureWatch(directory);
      for (const entry of (await ifThere(readdir(directory, { withFileTypes: true }))) ?? []) {
        const path = join(directory, entry.name);
        if (entry.name.startsWith('.') || Buffer.byteLength(path) > MAX_SOCKET_PATH_BYTES) continue;
        if (entry.isDirectory() && directories.length < MAX_DIRECTORIES) directories.push(path);
        if (!entry.isSocket()) continue;
        const found = await ifThere(stat(path, { bigint: true }));
        if (found !== undefined) sockets.set(path, `${found.ino}:${found.birthtimeNs}`);
      }
    }
    return sockets;
  }

  /**
   * Watches the directory. It replaces the watcher of a directory that was deleted and recreated, because that watcher reports
   * nothing any more.
   */
  async #ensureWatch(directory: string): Promise<void> {
    const inode = (await ifThere(stat(directory)))?.ino;
    const current = this.#watchers.get(directory);
    if (current?.inode === inode) return;
    current?.watcher.close();
    this.#watchers.delete(directory);
    if (inode === undefined) return;
    try {
      const watcher = watch(directory, { persistent: false }, () => {
        this.#options.clock.after(SCAN_DELAY_MS, () => this.#loop.wake());
      });
      watcher.on('error', () => this.#watchers.delete(directory));
      this.#watchers.set(directory, { watcher, inode });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
}

async function ifThere<T>(result: Promise<T>): Promise<T | undefined> {
  return result.catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
    throw error;
  });
}
