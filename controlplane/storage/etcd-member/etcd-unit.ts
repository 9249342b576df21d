/**
 * Runs etcd in a systemd unit of its own, which the control plane writes, and does not stop when it exits: the member votes
 * on while orchlet is upgraded or has crashed, and starts with its host.
 */
import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, readFile, rm } from 'node:fs/promises';
import { delimiter, dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { background } from '../../../api/machinery/background.ts';
import { periodically } from '../../../api/machinery/periodic.ts';
import { replaceFile, syncFolder } from '../../../api/machinery/replace-file.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import { StartError } from '../../model/start-error.ts';
import { EtcdLog, REMOVED_MESSAGE } from './etcd-log.ts';
import type { EtcdRunner, EtcdRunnerOptions } from './etcd-runner.ts';
import { stopLeftBehindEtcd } from './left-behind-etcd.ts';

export const ETCD_UNIT = 'orchlet-etcd.service';
/** The interval in which the log is read, after which a removed member is noticed. */
const WATCH_LOG_MS = 2000;

/** Where the unit is written, and the command that reads it. */
export interface UnitManager {
  /** The folder of systemd units: `/etc/systemd/system`. */
  readonly folder: string;
  /** Runs `systemctl`. Rejects if it fails. */
  systemctl(...args: readonly string[]): Promise<unknown>;
}

/** systemd of this host. */
export const hostUnits: UnitManager = {
  folder: '/etc/systemd/system',
  systemctl: (...args) => promisify(execFile)('systemctl', args),
};

/** Resolves to the data directory of the etcd that the unit of this host runs, and to `undefined` if there is no unit. */
export async function dataDirectoryOfUnit({ folder }: UnitManager): Promise<string | undefined> {
  const text = await readFile(join(folder, ETCD_UNIT), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  return /^DataDirectory=(.*)$/m.exec(text)?.[1];
}

/** Stops and disables the unit, and removes its file. Rejects if systemd refuses. */
export async function removeEtcdUnit({ folder, systemctl }: UnitManager): Promise<void> {
  await systemctl('disable', '--now', ETCD_UNIT);
  await rm(join(folder, ETCD_UNIT), { force: true });
  await syncFolder(folder);
  await systemctl('daemon-reload');
}

/** Writes and starts the unit. An etcd that already runs with these arguments is not restarted. */
export class EtcdUnit implements EtcdRunner {
  readonly #options: EtcdRunnerOptions;
  readonly #units: UnitManager;
  readonly #log: EtcdLog;
  readonly #stop = new AbortController();
  /** The size of the log when it was checked for the removal of the member. */
  #checkedBytes = -1;

  constructor(options: EtcdRunnerOptions, units: UnitManager) {
    this.#options = options;
    this.#units = units;
    this.#log = new EtcdLog(options.logFile);
  }

  lastLine(): Promise<string> {
    return this.#log.lastLine();
  }

  async start(): Promise<void> {
    const { pidFile, clock, logger } = this.#options;
    const { signal } = this.#stop;
    // An earlier control plane may have run etcd as its child process.
    await stopLeftBehindEtcd(this.#options);
    await rm(pidFile, { force: true });
    const text = etcdUnitText({ ...this.#options, binary: await absolutePath(this.#options.binary) });
    try {
      await this.#apply(text);
    } catch (cause) {
      throw new StartError(`${ETCD_UNIT} cannot be started: see 'systemctl status ${ETCD_UNIT}'`, { cause });
    }
    const onError = (error: unknown): void =>
      logger.error(
        { err: error, unit: ETCD_UNIT },
        'The unit of a member that was removed from etcd cannot be removed',
      );
    const watching = periodically(() => this.#checkRemoval(), { clock, periodMs: WATCH_LOG_MS, signal, onError });
    background(watching, { logger, what: 'Watching the log of etcd' });
    background(this.#log.limitSize({ clock, logger, signal }), { logger, what: 'Shortening the log of etcd' });
  }

  close(): Promise<void> {
    this.#stop.abort();
    return Promise.resolve();
  }

  async #apply(text: string): Promise<void> {
    const { folder, systemctl } = this.#units;
    const path = join(folder, ETCD_UNIT);
    const isSame = (await readFile(path, 'utf8').catch(() => '')) === text;
    if (!isSame) {
      await replaceFile(path, text, { mode: 0o644 });
      await systemctl('daemon-reload');
    }
    await systemctl('enable', ETCD_UNIT);
    await systemctl(isSame ? 'start' : 'restart', ETCD_UNIT);
    this.#options.logger.info(
      { unit: ETCD_UNIT },
      isSame ? 'etcd runs in its unit' : 'Wrote and started the unit of etcd',
    );
  }

  /** Removes the unit once the cluster has removed this member, because systemd would restart it again and again. */
  async #checkRemoval(): Promise<void> {
    const size = await this.#log.size();
    if (size === this.#checkedBytes) return;
    if (await this.#log.wasRemoved()) {
      await removeEtcdUnit(this.#units);
      this.#stop.abort();
      this.#options.onRemoved(new Error(REMOVED_MESSAGE));
    }
    this.#checkedBytes = size;
  }
}

/**
 * Returns the text of the unit. etcd may write to the directory that holds its data and its log, and needs no capability.
 * Throws a StartError if an argument cannot be written in a unit.
 */
export function etcdUnitText(options: Pick<EtcdRunnerOptions, 'binary' | 'arguments' | 'dataDirectory'>): string {
  const { binary, arguments: etcdArguments, dataDirectory } = options;
  const words = [binary, ...etcdArguments];
  const unfit = words.find((word) => /[\p{Cc}]/u.test(word));
  if (unfit !== undefined)
    throw new StartError(`${quoteText(unfit)} has control characters, which a unit of systemd cannot have`);
  return `# orchlet writes this file at each start of its control plane. What you add belongs into ${ETCD_UNIT}.d/*.conf.
[Unit]
Description=orchlet: etcd
After=network-online.target
Wants=network-online.target
Before=orchlet.service orchlet-controlplane.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=${words.map((word) => quoted(word).replaceAll('$', '$$$$')).join(' ')}
Restart=always
RestartSec=1s
TimeoutStopSec=30s
LimitNOFILE=1048576
OOMScoreAdjust=-999
UMask=0077
ProtectSystem=strict
ReadWritePaths=${quoted(dirname(dataDirectory))}
ProtectHome=read-only
PrivateDevices=yes
ProtectProc=invisible
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
DevicePolicy=closed
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target

[X-Orchlet]
DataDirectory=${dataDirectory}
`;
}

/** Returns the word as systemd reads it in a list: in quotes, with `%` doubled, because it begins a specifier. */
function quoted(word: string): string {
  return `"${word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%')}"`;
}

/** Resolves a program as a shell does. */
async function absolutePath(binary: string): Promise<string> {
  if (binary.includes('/')) return resolve(binary);
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    const path = join(folder, binary);
    const isThere = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (folder !== '' && isThere) return path;
  }
  throw new StartError(`${binary} is not in PATH: give its path in --etcd-binary`);
}
