/**
 * The volume manager: makes the volumes of a pod ready under `<root>/pods/<uid>/volumes/<plugin>/<name>`, keeps their
 * content up to date while the pod lives, and takes them down with it.
 *
 * One operation at a time a pod; a volume that hangs holds its own pod only. What is there is read from the host (mounts and
 * directories), so that a restarted agent finds it again.
 */
import { access, chmod, mkdir, readdir, rm, rmdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/machinery/client.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { parseQuantity, wholeUnits } from '../../api/meta/quantity.ts';
import {
  type Container,
  type Pod,
  type PodEventRecorder,
  type PreparedMounts,
  VolumeError,
  type VolumeManager,
} from '../core-types.ts';
import type { Mount } from '../runtime/runtime.ts';
import { expand } from '../kuberuntime/environment.ts';
import { writePayload } from './atomic-writer.ts';
import { checkHostPath } from './host-path.ts';
import type { Mounter } from './mounter.ts';
import { setVolumeOwnership } from './ownership.ts';
import { type PayloadSources, type Volume, volumePayload } from './payload.ts';
import { resolveClaim, type PersistentVolume } from './persistent.ts';
import { bindSubPath } from './subpath.ts';

export interface VolumeManagerOptions {
  /** `--root-dir`. */
  readonly rootDirectory: string;
  readonly client: Client | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly events: PodEventRecorder;
  readonly mounter: Mounter;
  readonly sources: PayloadSources;
  /** How often the content of a mounted volume is looked at again. */
  readonly refreshMs: number;
  /** How long a pod's volumes may take before the pod is told. */
  readonly mountTimeoutMs: number;
  readonly csi?: CsiVolumes;
  /** Forgets tokens of a pod that is gone. */
  readonly forgetPod: (podUid: string) => void;
}

/** Volumes of CSI drivers (`csi/`). */
export interface CsiVolumes {
  mount(request: {
    readonly pod: Pod;
    readonly volumeName: string;
    readonly persistent: PersistentVolume | undefined;
    readonly inline: NonNullable<Volume['csi']> | undefined;
    readonly readOnly: boolean;
    readonly target: string;
    readonly signal: AbortSignal;
  }): Promise<void>;
  unmount(podUid: string, volumeName: string, target: string): Promise<void>;
}

interface ReadyVolume {
  readonly name: string;
  /** On the host; '' for image volumes. */
  readonly path: string;
  readonly readOnly: boolean;
  readonly ephemeral: boolean;
  readonly image?: { readonly reference: string };
  readonly isBlock?: boolean;
  /** That of the volume's annotation, for the pod's processes. */
  readonly groupId?: number;
}

interface PodVolumes {
  pod: Pod;
  readonly ready: Map<string, ReadyVolume>;
  refresh: Timer | undefined;
  busy: Promise<void>;
}

export function createVolumeManager(
  options: VolumeManagerOptions,
): VolumeManager & { refreshPods(uids: ReadonlySet<string>): void } {
  return new HostVolumes(options);
}

class HostVolumes implements VolumeManager {
  readonly #options: VolumeManagerOptions;
  readonly #pods = new Map<string, PodVolumes>();
  readonly #mounted = new Set<string>();

  constructor(options: VolumeManagerOptions) {
    this.#options = options;
  }

  #directory(podUid: string): string {
    return join(this.#options.rootDirectory, 'pods', podUid);
  }

  #state(pod: Pod): PodVolumes {
    const existing = this.#pods.get(pod.metadata.uid);
    if (existing !== undefined) {
      existing.pod = pod;
      return existing;
    }
    const state: PodVolumes = { pod, ready: new Map(), refresh: undefined, busy: Promise.resolve() };
    this.#pods.set(pod.metadata.uid, state);
    return state;
  }

  async mount(pod: Pod, signal: AbortSignal): Promise<void> {
    const state = this.#state(pod);
    const failures = new Map<string, string>();
    const pending = new Set((pod.spec.volumes ?? []).map((volume) => volume.name));
    const work = this.#exclusive(state, async () => {
      await mkdir(join(this.#directory(pod.metadata.uid), 'volumes'), { recursive: true, mode: 0o750 });
      await Promise.all(
        (pod.spec.volumes ?? []).map(async (volume) => {
          try {
            // Only content is renewed: what is mounted is not looked at again.
            if (!state.ready.has(volume.name) || isPayloadVolume(volume))
              state.ready.set(volume.name, await this.#setUp(pod, volume, signal));
            pending.delete(volume.name);
          } catch (error) {
            const reason = error instanceof Error ? error.message : String(error);
            // What is mounted stays usable with its last content, however its source has fared.
            if (state.ready.has(volume.name)) pending.delete(volume.name);
            else failures.set(volume.name, reason);
            this.#options.events.event(
              pod,
              'Warning',
              'FailedMount',
              `MountVolume.SetUp failed for volume "${volume.name}" : ${reason}`,
            );
          }
        }),
      );
    });
    await this.#within(work, pending, signal);
    if (failures.size > 0) {
      const [first] = failures.values();
      throw new VolumeError(
        `unmounted volumes=[${[...pending].join(' ')}], unattached volumes=[], failed to process volumes=[]: ${first ?? ''}`,
      );
    }
    this.#scheduleRefresh(state);
  }

  /** Waits for the work, at most the mount timeout: a volume that hangs is told by name. */
  async #within(work: Promise<void>, pending: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
    const { clock, mountTimeoutMs } = this.#options;
    const timeout = Promise.withResolvers<never>();
    const timer = clock.after(mountTimeoutMs, () =>
      timeout.reject(
        new VolumeError(
          `unmounted volumes=[${[...pending].join(' ')}], unattached volumes=[], failed to process volumes=[]: context deadline exceeded`,
        ),
      ),
    );
    const onAbort = (): void => timeout.reject(signal.reason as Error);
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      await Promise.race([work, timeout.promise]);
    } finally {
      timer.cancel();
      signal.removeEventListener('abort', onAbort);
    }
  }

  async #exclusive<T>(state: PodVolumes, work: () => Promise<T>): Promise<T> {
    const result = state.busy.then(work, work);
    state.busy = result.then(
      () => undefined,
      () => undefined,
    );
    return result;
  }

  #scheduleRefresh(state: PodVolumes): void {
    if (!(state.pod.spec.volumes ?? []).some(isPayloadVolume)) return;
    state.refresh?.cancel();
    state.refresh = this.#options.clock.after(this.#options.refreshMs, () => this.#refresh(state));
  }

  #refresh(state: PodVolumes): void {
    const { pod } = state;
    if (this.#pods.get(pod.metadata.uid) !== state) return;
    this.#exclusive(state, async () => {
      const volumes = (state.pod.spec.volumes ?? []).filter((volume) => state.ready.has(volume.name));
      await Promise.all(volumes.filter(isPayloadVolume).map((volume) => this.#refreshVolume(state.pod, volume)));
    })
      .catch((error: unknown) =>
        this.#options.logger.warn(
          { pod: pod.metadata.name, err: error },
          'the content of a volume could not be brought up to date; it stays as it is',
        ),
      )
      .finally(() => {
        if (this.#pods.get(pod.metadata.uid) === state) this.#scheduleRefresh(state);
      });
  }

  /** One that cannot be brought up to date is told, and keeps no other from it. */
  async #refreshVolume(pod: Pod, volume: Volume): Promise<void> {
    try {
      await this.#writePayload(pod, volume);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      const message = `MountVolume.SetUp failed for volume "${volume.name}" : ${reason}`;
      this.#options.events.event(pod, 'Warning', 'FailedMount', message);
    }
  }

  refreshPods(uids: ReadonlySet<string>): void {
    for (const uid of uids) {
      const state = this.#pods.get(uid);
      if (state !== undefined && state.ready.size > 0) this.#refresh(state);
    }
  }

  async #setUp(pod: Pod, volume: Volume, signal: AbortSignal): Promise<ReadyVolume> {
    const at = (plugin: string): string => join(this.#directory(pod.metadata.uid), 'volumes', plugin, volume.name);
    if (volume.emptyDir !== undefined) return this.#emptyDir(pod, volume, at('kubernetes.io~empty-dir'));
    if (volume.hostPath !== undefined) {
      await checkHostPath(volume.hostPath.path, volume.hostPath.type ?? '');
      return { name: volume.name, path: volume.hostPath.path, readOnly: false, ephemeral: false };
    }
    if (isPayloadVolume(volume)) {
      const path = await this.#writePayload(pod, volume);
      return { name: volume.name, path, readOnly: false, ephemeral: true };
    }
    if (volume.nfs !== undefined) {
      const path = at('kubernetes.io~nfs');
      await this.#mountNfs(path, volume.nfs, []);
      return { name: volume.name, path, readOnly: volume.nfs.readOnly === true, ephemeral: false };
    }
    if (volume.persistentVolumeClaim !== undefined) {
      const { claimName, readOnly } = volume.persistentVolumeClaim;
      return this.#persistent(pod, volume.name, claimName, readOnly === true, signal);
    }
    if (volume.ephemeral !== undefined)
      return this.#persistent(pod, volume.name, `${pod.metadata.name}-${volume.name}`, false, signal);
    if (volume.csi !== undefined) {
      if (this.#options.csi === undefined) throw new Error('CSI volumes are not available on this node');
      const path = at('kubernetes.io~csi');
      const target = join(path, 'mount');
      await this.#options.csi.mount({
        pod,
        volumeName: volume.name,
        persistent: undefined,
        inline: volume.csi,
        readOnly: volume.csi.readOnly === true,
        target,
        signal,
      });
      return { name: volume.name, path: target, readOnly: volume.csi.readOnly === true, ephemeral: true };
    }
    if (volume.image !== undefined) {
      return {
        name: volume.name,
        path: '',
        readOnly: true,
        ephemeral: false,
        image: { reference: volume.image.reference ?? '' },
      };
    }
    throw new Error('no volume plugin matched');
  }

  async #emptyDir(pod: Pod, volume: Volume, path: string): Promise<ReadyVolume> {
    // Once made it belongs to the containers: an agent that was restarted changes nothing of it.
    const ready = join(this.#directory(pod.metadata.uid), 'plugins', 'kubernetes.io~empty-dir', volume.name, 'ready');
    const wasReady = await exists(ready);
    await mkdir(path, { recursive: true, mode: 0o777 });
    const medium = volume.emptyDir?.medium ?? '';
    if (medium === 'Memory' || medium.startsWith('HugePages')) {
      const points = await this.#options.mounter.list();
      if (!points.some((point) => point.path === path)) {
        const limit = volume.emptyDir?.sizeLimit;
        const sizeBytes = limit === undefined ? 0 : Number(wholeUnits(parseQuantity(String(limit))));
        const options = sizeBytes > 0 ? [`size=${Math.ceil(sizeBytes)}`] : [];
        if (medium === 'Memory')
          await this.#options.mounter.mount({ source: 'tmpfs', target: path, type: 'tmpfs', options });
        else
          await this.#options.mounter.mount({
            source: 'nodev',
            target: path,
            type: 'hugetlbfs',
            options: medium.includes('-') ? [`pagesize=${medium.slice('HugePages-'.length).replace('i', '')}`] : [],
          });
      }
      this.#mounted.add(path);
    }
    if (!wasReady || medium !== '') {
      await chmod(path, 0o777);
      await this.#giveToGroup(pod, path, false);
      await mkdir(dirname(ready), { recursive: true, mode: 0o750 });
      await writeFile(ready, '');
    }
    return { name: volume.name, path, readOnly: false, ephemeral: medium === '' };
  }

  async #giveToGroup(pod: Pod, path: string, readonly: boolean): Promise<void> {
    const gid = pod.spec.securityContext?.fsGroup;
    if (gid === undefined) return;
    const policy = pod.spec.securityContext?.fsGroupChangePolicy === 'OnRootMismatch' ? 'OnRootMismatch' : 'Always';
    await setVolumeOwnership(path, { gid, readonly, policy });
  }

  async #writePayload(pod: Pod, volume: Volume): Promise<string> {
    const payload = await volumePayload(pod, volume, this.#options.sources);
    const plugin = pluginOf(volume);
    const path = join(this.#directory(pod.metadata.uid), 'volumes', plugin, volume.name);
    if (payload === undefined) throw new Error(`volume ${volume.name} has no content of its own`);
    await mkdir(path, { recursive: true, mode: 0o777 });
    // Secrets never reach a disk.
    if (plugin !== 'kubernetes.io~configmap' && plugin !== 'kubernetes.io~downward-api') await this.#ensureTmpfs(path);
    await chmod(path, 0o777);
    await writePayload(path, payload, pod.spec.securityContext?.fsGroup, new Date(this.#options.clock.now()));
    return path;
  }

  async #ensureTmpfs(path: string): Promise<void> {
    if (this.#mounted.has(path)) return;
    const points = await this.#options.mounter.list();
    if (!points.some((point) => point.path === path)) {
      await this.#options.mounter
        .mount({ source: 'tmpfs', target: path, type: 'tmpfs', options: ['noswap'] })
        .catch(() =>
          // Kernels before 6.4 do not know it.
          this.#options.mounter.mount({ source: 'tmpfs', target: path, type: 'tmpfs' }),
        );
    }
    this.#mounted.add(path);
  }

  async #persistent(
    pod: Pod,
    volumeName: string,
    claimName: string,
    wantReadOnly: boolean,
    signal: AbortSignal,
  ): Promise<ReadyVolume> {
    const { volume, readOnly } = await resolveClaim(this.#options.client, pod, claimName, wantReadOnly);
    const spec = volume.spec ?? {};
    const gid = volume.metadata.annotations?.['pv.beta.kubernetes.io/gid'] ?? '';
    const groupId = /^[1-9]\d*$/.test(gid) ? Number(gid) : undefined;
    const base = { name: volumeName, readOnly, ephemeral: false, ...(groupId === undefined ? {} : { groupId }) };
    if (spec.hostPath !== undefined) {
      await checkHostPath(spec.hostPath.path, spec.hostPath.type ?? '');
      return { ...base, path: spec.hostPath.path };
    }
    if (spec.local !== undefined) {
      await checkHostPath(spec.local.path, spec.volumeMode === 'Block' ? 'BlockDevice' : 'Directory');
      if (spec.volumeMode === 'Block') return { ...base, path: spec.local.path, isBlock: true };
      await this.#giveToGroup(pod, spec.local.path, readOnly);
      return { ...base, path: spec.local.path };
    }
    const directory = join(this.#directory(pod.metadata.uid), 'volumes');
    if (spec.nfs !== undefined) {
      const path = join(directory, 'kubernetes.io~nfs', volume.metadata.name);
      await this.#mountNfs(path, spec.nfs, spec.mountOptions ?? []);
      return { ...base, path };
    }
    if (spec.csi !== undefined) {
      if (this.#options.csi === undefined) throw new Error('CSI volumes are not available on this node');
      const path = join(directory, 'kubernetes.io~csi', volume.metadata.name, 'mount');
      await this.#options.csi.mount({
        pod,
        volumeName: volume.metadata.name,
        persistent: volume,
        inline: undefined,
        readOnly,
        target: path,
        signal,
      });
      if (!readOnly) await this.#giveToGroup(pod, path, false);
      return { ...base, path };
    }
    throw new Error('no volume plugin matched');
  }

  async #mountNfs(
    path: string,
    nfs: { server: string; path: string; readOnly?: boolean },
    options: readonly string[],
  ): Promise<void> {
    await mkdir(path, { recursive: true, mode: 0o750 });
    const points = await this.#options.mounter.list();
    if (!points.some((point) => point.path === path)) {
      const host = nfs.server.includes(':') ? `[${nfs.server}]` : nfs.server;
      await this.#options.mounter.mount({
        source: `${host}:${nfs.path}`,
        target: path,
        type: 'nfs',
        options: [...(nfs.readOnly === true ? ['ro'] : []), ...options],
      });
    }
    this.#mounted.add(path);
  }

  async containerMounts(pod: Pod, container: Container, env: ReadonlyMap<string, string>): Promise<PreparedMounts> {
    const ready = this.#pods.get(pod.metadata.uid)?.ready ?? new Map<string, ReadyVolume>();
    const mounts: Mount[] = [];
    for (const [index, wanted] of (container.volumeMounts ?? []).entries()) {
      const volume = ready.get(wanted.name);
      if (volume === undefined)
        throw new VolumeError(`cannot find volume "${wanted.name}" to mount into container "${container.name}"`);
      const readonly = wanted.readOnly === true || volume.readOnly;
      const base = {
        containerPath: wanted.mountPath.startsWith('/') ? wanted.mountPath : `/${wanted.mountPath}`,
        readonly,
        recursiveReadOnly:
          readonly && (wanted.recursiveReadOnly === 'Enabled' || wanted.recursiveReadOnly === 'IfPossible'),
        propagation: propagationOf(wanted.mountPropagation),
        seLinuxRelabel: false,
      } as const;
      const subPath =
        wanted.subPathExpr === undefined ? (wanted.subPath ?? '') : expandSubPath(wanted.subPathExpr, env);
      if (volume.image !== undefined) {
        mounts.push({
          ...base,
          hostPath: '',
          image: volume.image.reference,
          ...(subPath === '' ? {} : { imageSubPath: subPath }),
        });
        continue;
      }
      let hostPath = volume.path;
      if (subPath !== '') {
        checkSubPath(subPath);
        const target = join(
          this.#directory(pod.metadata.uid),
          'volume-subpaths',
          wanted.name,
          container.name,
          String(index),
        );
        try {
          hostPath = await bindSubPath(volume.path, subPath, target, this.#options.mounter);
        } catch (error) {
          // What exactly went wrong could tell of the host's files: it goes to the log only.
          this.#options.logger.error({ pod: pod.metadata.name, err: error }, 'a subPath could not be prepared');
          throw new VolumeError(
            `failed to prepare subPath for volumeMount "${wanted.name}" of container "${container.name}"`,
            { cause: error },
          );
        }
        this.#mounted.add(target);
      }
      mounts.push({ ...base, hostPath });
    }
    const devices = (container.volumeDevices ?? []).map((device) => {
      const volume = ready.get(device.name);
      if (volume?.isBlock !== true)
        throw new VolumeError(`cannot find block volume "${device.name}" for container "${container.name}"`);
      return { containerPath: device.devicePath, hostPath: volume.path, permissions: volume.readOnly ? 'r' : 'mrw' };
    });
    return { mounts, devices };
  }

  async releaseContainer(podUid: string, containerName: string): Promise<void> {
    const root = join(this.#directory(podUid), 'volume-subpaths');
    for (const point of await this.#mountsUnder(root)) {
      if (point.slice(root.length + 1).split('/')[1] === containerName) await this.#takeDown(point);
    }
  }

  async unmount(pod: Pod, _signal: AbortSignal): Promise<void> {
    const uid = pod.metadata.uid;
    const state = this.#pods.get(uid);
    const clean = async (): Promise<void> => {
      state?.refresh?.cancel();
      await this.#cleanPod(uid);
    };
    // After what is under way: one that hangs keeps its pod, and its pod only.
    if (state === undefined) await clean();
    else await this.#exclusive(state, clean);
    this.#pods.delete(uid);
    state?.refresh?.cancel();
    this.#options.forgetPod(uid);
  }

  async #cleanPod(uid: string): Promise<void> {
    const directory = this.#directory(uid);
    for (const target of await this.#csiTargets(uid)) await this.#options.csi?.unmount(uid, target.volume, target.path);
    for (const point of (await this.#mountsUnder(directory)).toReversed()) await this.#takeDown(point);
    const left = await this.#mountsUnder(directory);
    // Never removed through a mount: what is behind it is not the pod's.
    if (left.length > 0) throw new Error(`still mounted: ${left.join(', ')}`);
    for (const part of ['volumes', 'volume-subpaths', 'volumeDevices', 'plugins']) {
      await rm(join(directory, part), { recursive: true, force: true });
    }
  }

  async #csiTargets(uid: string): Promise<{ volume: string; path: string }[]> {
    const root = join(this.#directory(uid), 'volumes', 'kubernetes.io~csi');
    const names = await readdir(root).catch(() => []);
    return names.map((volume) => ({ volume, path: join(root, volume, 'mount') }));
  }

  async #mountsUnder(directory: string): Promise<string[]> {
    const points = await this.#options.mounter.list();
    return points.map((point) => point.path).filter((path) => path.startsWith(`${directory}/`));
  }

  async #takeDown(path: string): Promise<void> {
    await this.#options.mounter.unmount(path);
    this.#mounted.delete(path);
    await rmdir(path).catch(() => rm(path, { force: true }).catch(() => undefined));
  }

  hasMounts(podUid: string): boolean {
    const directory = `${this.#directory(podUid)}/`;
    return this.#pods.has(podUid) || [...this.#mounted].some((path) => path.startsWith(directory));
  }

  async cleanOrphans(known: ReadonlySet<string>): Promise<void> {
    const root = join(this.#options.rootDirectory, 'pods');
    for (const uid of await readdir(root).catch(() => [])) {
      if (known.has(uid) || this.#pods.has(uid)) continue;
      try {
        await this.#cleanPod(uid);
        await rm(join(root, uid), { recursive: true, force: true });
      } catch (error) {
        this.#options.logger.warn(
          { podUid: uid, err: error },
          'what is left of a pod that is gone could not be removed; trying again',
        );
      }
    }
  }

  podVolumes(podUid: string): readonly { readonly name: string; readonly path: string; readonly ephemeral: boolean }[] {
    const state = this.#pods.get(podUid);
    return state === undefined ? [] : [...state.ready.values()].filter((volume) => volume.path !== '');
  }

  extraSupplementalGroups(pod: Pod): readonly number[] {
    const ready = this.#pods.get(pod.metadata.uid)?.ready.values() ?? [];
    return [...new Set([...ready].flatMap((volume) => (volume.groupId === undefined ? [] : [volume.groupId])))];
  }

  async close(): Promise<void> {
    for (const state of this.#pods.values()) state.refresh?.cancel();
    await Promise.all([...this.#pods.values()].map((state) => state.busy));
  }
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

function isPayloadVolume(volume: Volume): boolean {
  return (
    volume.configMap !== undefined ||
    volume.secret !== undefined ||
    volume.downwardAPI !== undefined ||
    volume.projected !== undefined
  );
}

function pluginOf(volume: Volume): string {
  if (volume.configMap !== undefined) return 'kubernetes.io~configmap';
  if (volume.secret !== undefined) return 'kubernetes.io~secret';
  return volume.downwardAPI === undefined ? 'kubernetes.io~projected' : 'kubernetes.io~downward-api';
}

function propagationOf(mode: string | undefined): 'private' | 'host-to-container' | 'bidirectional' {
  if (mode === 'Bidirectional') return 'bidirectional';
  return mode === 'HostToContainer' ? 'host-to-container' : 'private';
}

function expandSubPath(expression: string, env: ReadonlyMap<string, string>): string {
  const missing = new Set<string>();
  const expanded = expand(expression, (name) => {
    const value = env.get(name) ?? '';
    if (value === '') missing.add(name);
    return value;
  });
  if (missing.size > 0) throw new VolumeError(`missing value for ${[...missing].toSorted().join(', ')}`);
  return expanded;
}

function checkSubPath(subPath: string): void {
  if (subPath.startsWith('/')) throw new VolumeError(`error SubPath \`${subPath}\` must not be an absolute path`);
  if (subPath.split('/').includes('..'))
    throw new VolumeError(`unable to provision SubPath \`${subPath}\`: must not contain '..'`);
}
