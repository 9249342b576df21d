/**
 * Finds a container runtime for this host: a CRI or Docker socket that answers; else starts a private Docker daemon, for which
 * it installs docker.io as root on Debian or Ubuntu. Tests get a private containerd as well.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { startCriRuntime } from '../agent/runtime/cri/cri-runtime.ts';
import { dockerAnswers, KNOWN_CRI_SOCKETS, KNOWN_DOCKER_SOCKETS } from '../agent/runtime/known-sockets.ts';
import { unmetCondition } from '../agent/runtime/select-runtime.ts';
import { silentLogger } from '../api/component/logger.ts';
import { systemClock } from '../api/machinery/clock.ts';

/** A runtime that answers. */
export interface FoundRuntime {
  /** `unix:///…/docker.sock`, or a CRI runtime's socket. */
  readonly endpoint: string;
  /** The agent's flags for this runtime. */
  readonly flags: readonly string[];
  /** Stops the daemon, if this program started it. */
  stop(): void;
}

const SCRIPTS = import.meta.dirname;

/**
 * Whether the socket speaks CRI and pods get a network there, unlike on the containerd of a Docker Engine. If `isNew`, a
 * runtime with pods does not count, because they belong to another node agent, and this agent would remove them.
 */
async function servesPods(path: string, isNew: boolean): Promise<boolean> {
  if (!existsSync(path)) return false;
  const options = { endpoint: `unix://${path}`, requestTimeoutMs: 5_000, clock: systemClock, logger: silentLogger };
  try {
    const runtime = await startCriRuntime(options);
    try {
      if (isNew && (await runtime.listSandboxes()).length > 0) return false;
      return unmetCondition(await runtime.conditions()) === undefined;
    } finally {
      await runtime.close();
    }
  } catch {
    // A runtime that fails here cannot be used, whatever the reason is.
    return false;
  }
}

const docker = (path: string, stop: () => void = () => undefined): FoundRuntime => {
  const endpoint = `unix://${path}`;
  return { endpoint, flags: ['--container-runtime', 'docker', '--docker-endpoint', endpoint], stop };
};

const cri = (path: string, stop: () => void = () => undefined): FoundRuntime => {
  const endpoint = `unix://${path}`;
  return { endpoint, flags: ['--container-runtime', 'remote', '--container-runtime-endpoint', endpoint], stop };
};

/**
 * Finds a container runtime, or installs or starts one. `directory` is that of a private daemon. `report` is called with each
 * step. Throws an error with a remedy if no runtime can be started.
 */
export async function findRuntime(options: {
  readonly directory: string;
  readonly report: (text: string) => void;
  readonly privately?: boolean;
  /** Whether no agent has run pods from this checkout before. */
  readonly isNew?: boolean;
}): Promise<FoundRuntime> {
  const fromEnvironment = (process.env['DOCKER_HOST'] ?? '').replace(/^unix:\/\//, '');
  if (options.privately !== true) {
    if (fromEnvironment.startsWith('/') && (await dockerAnswers(fromEnvironment))) return docker(fromEnvironment);
    for (const path of KNOWN_CRI_SOCKETS) if (await servesPods(path, options.isNew === true)) return cri(path);
    for (const path of KNOWN_DOCKER_SOCKETS) if (await dockerAnswers(path)) return docker(path);
  }
  ensureInstalled(options.report);
  return startPrivate(options.directory);
}

function has(command: string): boolean {
  return spawnSync('sh', ['-c', `command -v ${command}`]).status === 0;
}

/**
 * Installs Debian packages with apt, as root. `why` says what needs them. Throws an error that begins with `why` if this
 * process is not root, if the host has no apt, or if the installation fails.
 */
export function installPackages(packages: readonly string[], why: string): void {
  if (process.getuid?.() !== 0 || !has('apt-get')) {
    throw new Error(`${why}: install ${packages.join(', ')} (as root on Debian or Ubuntu this script does it itself)`);
  }
  const run = (args: readonly string[]): string => {
    const done = spawnSync('apt-get', args, {
      encoding: 'utf8',
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    });
    return done.status === 0 ? '' : `${done.stderr}${done.stdout}`.trim();
  };
  const install = ['install', '-y', '-q', '--no-install-recommends', ...packages];
  // The list of packages may be missing or old. It is fetched only if the installation fails without it.
  if (run(install) === '') return;
  run(['update', '-q']);
  const problem = run(install);
  if (problem !== '')
    throw new Error(
      `${why}, and apt-get install ${packages.join(' ')} failed:\n${problem.split('\n').slice(-5).join('\n')}`,
    );
}

function ensureInstalled(report: (text: string) => void): void {
  const missing = [
    ...(has('dockerd') ? [] : ['docker.io']),
    ...(has('iptables') ? [] : ['iptables']),
    // The agent enforces network policies with nft.
    ...(has('nft') ? [] : ['nftables']),
    // The agent calls conntrack when an endpoint is gone, so that its UDP clients reach another one.
    ...(has('conntrack') ? [] : ['conntrack']),
    ...(has('curl') ? [] : ['curl']),
    ...(has('docker') ? [] : ['docker.io']),
  ];
  if (missing.length === 0) return;
  const packages = [...new Set(missing)];
  report(`installing ${packages.join(', ')} with apt`);
  installPackages(packages, 'no container runtime answers on this host');
}

function startPrivate(directory: string): FoundRuntime {
  const script = join(SCRIPTS, 'docker-private');
  const started = spawnSync(script, ['start', directory], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  if (started.status !== 0) throw new Error(`a private Docker daemon could not be started: ${started.stderr.trim()}`);
  return docker(started.stdout.trim(), () => void spawnSync(script, ['stop', directory], { stdio: 'ignore' }));
}

/** Installs what private runtimes need, so that several can be started at the same time. */
export function installRuntimes(report: (text: string) => void): void {
  ensureInstalled(report);
  ensureContainerdInstalled(report);
}

function ensureContainerdInstalled(report: (text: string) => void): void {
  const wanted = [
    ...(has('containerd') && has('ctr') ? [] : ['containerd']),
    ...(has('runc') ? [] : ['runc']),
    ...(existsSync('/usr/lib/cni/bridge') || existsSync('/opt/cni/bin/bridge') ? [] : ['containernetworking-plugins']),
    ...(has('iptables') ? [] : ['iptables']),
    ...(has('ip') ? [] : ['iproute2']),
  ];
  if (wanted.length === 0) return;
  report(`installing ${wanted.join(', ')} with apt`);
  installPackages(wanted, 'the tests need a containerd');
}

/** Starts a containerd with CRI and a pod network of its own, for tests; `archive` holds its sandbox image. */
export function startPrivateContainerd(
  directory: string,
  archive: string,
  report: (text: string) => void,
): FoundRuntime {
  ensureContainerdInstalled(report);
  const script = join(SCRIPTS, 'containerd-private');
  const started = spawnSync(script, ['start', directory, archive], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  if (started.status !== 0) throw new Error(`a private containerd could not be started: ${started.stderr.trim()}`);
  return cri(started.stdout.trim(), () => void spawnSync(script, ['stop', directory], { stdio: 'ignore' }));
}

/** Programs that tests run, with their Debian packages. */
const TEST_TOOLS = [
  { programs: ['nft'], packages: ['nftables'], why: 'the tests of services and network policies need nft' },
  { programs: ['conntrack'], packages: ['conntrack'], why: 'the tests of services need conntrack' },
  {
    programs: ['wg', 'wireguard-go'],
    packages: ['wireguard-go', 'wireguard-tools'],
    why: 'the tests of the pod network need WireGuard',
  },
  { programs: ['etcd'], packages: ['etcd-server'], why: 'the tests of several control planes need etcd' },
  { programs: ['setquota'], packages: ['quota'], why: 'the tests of local volumes need setquota' },
  { programs: ['docker-registry'], packages: ['docker-registry'], why: 'the tests of pulls need a registry' },
  { programs: ['dbus-daemon'], packages: ['dbus'], why: 'the tests with a systemd of their own need its message bus' },
] as const;

/** Installs the missing programs of `TEST_TOOLS`, as `installPackages` does. Throws if one cannot be installed. */
export function ensureTestTools(report: (text: string) => void): void {
  for (const { programs, packages, why } of TEST_TOOLS) {
    if (programs.every(has)) continue;
    report(`installing ${packages.join(', ')} with apt`);
    installPackages(packages, why);
  }
}

/**
 * Returns the path of the image archive for a host without a registry, which the first call builds. Throws if busybox, of which
 * the demo image is made, cannot be installed, or if the build fails.
 */
export function ensureImages(directory: string, report: (text: string) => void): string {
  const archive = join(directory, 'orchlet-images.tar');
  if (existsSync(archive)) return archive;
  if (!existsSync('/bin/busybox') && !existsSync('/usr/bin/busybox')) {
    report('installing busybox-static with apt');
    installPackages(['busybox-static'], 'the demo image is made of a static busybox');
  }
  const build = (): ReturnType<typeof spawnSync> =>
    spawnSync(join(SCRIPTS, 'airgap-images'), [directory], { encoding: 'utf8' });
  let built = build();
  if (built.status !== 0 && String(built.stderr).includes('busybox')) {
    installPackages(['busybox-static'], 'the demo image is made of a static busybox');
    built = build();
  }
  if (built.status !== 0) throw new Error(String(built.stderr).trim());
  return archive;
}
