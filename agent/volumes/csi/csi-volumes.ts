/**
 * Volumes of CSI drivers for the volume manager: waits until they are attached, stages them once on the node, publishes them
 * for each pod, and later unpublishes and unstages them. Controllers attach and detach them. A `vol_data.json` file, or the
 * link of a block device, records each step before the driver's call, so that a restarted agent finds it.
 *
 * Each volume (driver and handle) has one operation at a time, independent of other volumes. A call with an unknown outcome (a
 * deadline, a lost connection) counts as done when the volume is removed.
 */
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import type { Client } from '../../../api/client/client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { CSIDriver } from '../../../api/kinds/kinds.ts';
import { csiDrivers } from '../../../api/client/resources.ts';
import { KeyedQueue } from '../../../api/machinery/serial-queue.ts';
import { isNotFound } from '../../../api/meta/status-error.ts';
import type { VolumeMeasure } from '../pod-volumes.ts';
import { GrpcError } from '../../../api/grpc/grpc-error.ts';
import type { OutgoingOf } from '../../../api/grpc/messages.ts';
import { type VolumeStep, VolumeStepError } from '../volume-failure.ts';
import { awaitAttachment } from './attachment.ts';
import {
  accessModesOf,
  attributesOf,
  checkLifecycle,
  missingDriverStep,
  type CsiMount,
  type CsiMountRequest,
  driverOf,
  fsTypeOf,
  handleOf,
  isBlock,
  mountOptionsOf,
  type SecretRef,
  secretRefOf,
  specNameOf,
} from './csi-source.ts';
import { CSI_TIMEOUT_MS, type CsiDriver, type CsiDrivers, isUncertain } from './drivers.ts';
import {
  CsiLayout,
  hasPodEntry,
  linkDevice,
  type Places,
  readVolumeData,
  removeEmpty,
  removePodEntry,
  removeVolumeData,
  type VolumeData,
  writeVolumeData,
} from './layout.ts';
import { type ContextSources, publishContext } from './publish-context.ts';
import { type CSI_MESSAGES, USAGE_BYTES, USAGE_INODES } from './schema.ts';
import { agentSetsGroup, volumeCapability } from './volume-capability.ts';
import { attachmentName, uniqueVolumeName } from '../../../api/kinds/attached-volumes.ts';

interface CsiVolumesOptions {
  readonly rootDirectory: string;
  readonly nodeName: string;
  readonly client: Client | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly drivers: CsiDrivers;
  readonly sources: ContextSources;
  /** Returns the node's `volumesInUse` as the API server last stored it. */
  readonly reportedInUse: () => readonly string[];
  readonly onInUseChange: () => void;
}

/** The values of one volume that all calls use, from the request and the cluster. */
interface Plan {
  readonly request: CsiMountRequest;
  readonly data: VolumeData;
  readonly places: Places;
  readonly driver: CsiDriver;
  readonly object: CSIDriver | undefined;
  readonly capability: OutgoingOf<typeof CSI_MESSAGES, 'VolumeCapability'>;
  readonly attached: Readonly<Record<string, string>>;
}

/** Owns the state of CSI volumes on this node. Methods throw `VolumeStepError`s or the errors of drivers. */
export class CsiVolumes {
  readonly #options: CsiVolumesOptions;
  readonly #layout: CsiLayout;
  readonly #inUse = new Set<string>();
  /** Volumes that were staged since this agent started. After a restart drivers accept the call again. */
  readonly #staged = new Set<string>();
  /** Target paths that this agent has published, with their volumes. */
  readonly #published = new Map<string, string>();
  /** The attachers' metadata for drivers, by the volume's name on the node. */
  readonly #attachments = new Map<string, Readonly<Record<string, string>>>();
  /** The queue by volume, because the driver's calls for one volume must not overlap. */
  readonly #queue = new KeyedQueue();

  constructor(options: CsiVolumesOptions) {
    this.#options = options;
    this.#layout = new CsiLayout(options.rootDirectory);
  }

  /** Reads the volumes that an earlier agent has left attached. They stay in use until they are removed. */
  async recover(): Promise<void> {
    for (const { data } of await this.#layout.devices(this.#options.logger))
      if (data.attachmentID !== undefined) this.#inUse.add(uniqueVolumeName(data.driverName, data.volumeHandle));
  }

  /** Returns attached volumes that must not be detached, for the node's status. */
  volumesInUse(): readonly string[] {
    return [...this.#inUse].toSorted();
  }

  /** Stages, publishes and expands a volume as far as required and not done. Calls for one volume run one after the other. */
  async mount(request: CsiMountRequest): Promise<CsiMount> {
    const plan = await this.#plan(request);
    return this.#queue.run(keyOf(plan.data), async () => {
      const { data, places, object, driver } = plan;
      const { source } = request;
      const isFirst = !this.#published.has(places.target);
      const republishes = object?.spec?.requiresRepublish === true;
      const isPersistent = data.volumeLifecycleMode === 'Persistent';
      if (isPersistent && isFirst) await this.#stage(plan);
      if (isFirst || republishes) await this.#publish(plan);
      this.#published.set(places.target, keyOf(data));
      const growBytes = source.kind === 'persistent' ? source.growBytes : undefined;
      return {
        path: places.target,
        isBlock: places.kind === 'block',
        setsGroup: isFirst && (await this.#setsGroup(plan)),
        refreshes: republishes || (isPersistent && (await driver.can('expand'))),
        grown: growBytes !== undefined && (await this.#grow(plan, growBytes)),
      };
    });
  }

  async #setsGroup({ request, places, driver, object }: Plan): Promise<boolean> {
    if (places.kind === 'block' || (await driver.can('mountGroup'))) return false;
    return agentSetsGroup({
      policy: object?.spec?.fsGroupPolicy,
      readOnly: request.readOnly,
      fsType: fsTypeOf(request.source),
      accessModes: accessModesOf(request.source),
    });
  }

  /** Removes all CSI volumes of the pod that the disk shows. */
  async unmountPod(podUid: string): Promise<void> {
    for (const { data, places } of await this.#layout.ofPod(podUid)) {
      await this.#queue.run(keyOf(data), async () => {
        const driver = this.#options.drivers.get(data.driverName);
        const target = { volumeId: data.volumeHandle, targetPath: places.target };
        await driver.client.call('nodeUnpublishVolume', target, { timeoutMs: CSI_TIMEOUT_MS });
        this.#published.delete(places.target);
        await removePodEntry(places);
        if (data.volumeLifecycleMode === 'Persistent') await this.#unstageUnused(driver, data, places);
      });
    }
  }

  /** Removes volumes that no pod of this node uses, such as those of an agent that was killed between two steps. */
  async cleanUnused(): Promise<void> {
    const { drivers, logger } = this.#options;
    const used = new Set(this.#published.values());
    for (const { data, kind } of await this.#layout.devices()) {
      const key = keyOf(data);
      if (used.has(key) || this.#queue.has(key)) continue;
      try {
        if ((await this.#layout.podsWith(data, kind)).length > 0) continue;
        const places = kind === 'block' ? this.#layout.block(data, '') : this.#layout.filesystem(data, '');
        await this.#queue.run(keyOf(data), () => this.#unstageUnused(drivers.get(data.driverName), data, places));
      } catch (error) {
        logger.warn({ volume: data.specVolID, err: error }, 'Cannot remove a volume that no pod uses, retrying');
      }
    }
  }

  /** Returns the driver's measurement, or `undefined` if it offers none or the pod has no volume at the path. */
  async usage(podUid: string, path: string): Promise<VolumeMeasure | undefined> {
    const found = (await this.#layout.ofPod(podUid)).find(({ places }) => places.target === path);
    if (found === undefined) return undefined;
    const { data, places } = found;
    const driver = this.#options.drivers.get(data.driverName);
    if (!(await driver.can('volumeStats'))) return undefined;
    const { usage } = await driver.client.call(
      'nodeGetVolumeStats',
      { volumeId: data.volumeHandle, volumePath: places.target, stagingTargetPath: places.staging },
      { timeoutMs: CSI_TIMEOUT_MS },
    );
    const bytes = usage.find(({ unit }) => unit === USAGE_BYTES);
    const inodes = usage.find(({ unit }) => unit === USAGE_INODES);
    return {
      driver: data.driverName,
      capacityBytes: bytes?.total ?? 0,
      availableBytes: bytes?.available ?? 0,
      usedBytes: bytes?.used ?? 0,
      inodes: inodes?.total ?? 0,
      inodesFree: inodes?.available ?? 0,
      inodesUsed: inodes?.used ?? 0,
    };
  }

  async #plan(request: CsiMountRequest): Promise<Plan> {
    const { pod, source } = request;
    const driverName = driverOf(source);
    const specVolID = specNameOf(request);
    const block = isBlock(source);
    const fail = (step: VolumeStep) => (error: unknown) => Promise.reject(new VolumeStepError(step, specVolID, error));
    const object = await this.#driverObject(driverName).catch(fail('MountVolume.SetUp'));
    const volumeHandle = handleOf(request);
    const attachmentID =
      source.kind === 'persistent' && object?.spec?.attachRequired !== false
        ? attachmentName(volumeHandle, driverName, this.#options.nodeName)
        : undefined;
    const data: VolumeData = {
      specVolID,
      volumeHandle,
      driverName,
      nodeName: this.#options.nodeName,
      volumeLifecycleMode: source.kind === 'inline' ? 'Ephemeral' : 'Persistent',
      ...(attachmentID === undefined ? {} : { attachmentID }),
    };
    const attached =
      attachmentID === undefined
        ? {}
        : await this.#attached(data, attachmentID, object, request.signal).catch(fail('MountVolume.WaitForAttach'));
    const driver = this.#driver(driverName, request);
    try {
      if (source.kind === 'inline') checkLifecycle(driverName, object);
      const capability = volumeCapability({
        isBlock: block,
        fsType: fsTypeOf(source),
        mountOptions: mountOptionsOf(source),
        accessModes: accessModesOf(source),
        knowsSingleNodeModes: await driver.can('singleNodeMultiWriter'),
        mountGroup: (await driver.can('mountGroup')) ? pod.spec.securityContext?.fsGroup : undefined,
      });
      const { uid } = pod.metadata;
      const places = block ? this.#layout.block(data, uid) : this.#layout.filesystem(data, uid);
      return { request, data, places, driver, object, capability, attached };
    } catch (error) {
      throw new VolumeStepError(block ? 'MapVolume.SetUpDevice' : 'MountVolume.SetUp', specVolID, error);
    }
  }

  #driver(name: string, request: CsiMountRequest): CsiDriver {
    try {
      return this.#options.drivers.get(name);
    } catch (error) {
      const { step, words } = missingDriverStep(request.source);
      throw new VolumeStepError(step, specNameOf(request), new Error(`${words}: ${(error as Error).message}`));
    }
  }

  async #driverObject(name: string): Promise<CSIDriver | undefined> {
    try {
      return (await this.#options.client?.get(csiDrivers, '', name)) as CSIDriver | undefined;
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  /** Reports the volume as in use and waits until it is attached. Returns the attacher's metadata. */
  async #attached(
    data: VolumeData,
    name: string,
    object: CSIDriver | undefined,
    signal: AbortSignal,
  ): Promise<Readonly<Record<string, string>>> {
    const { client, clock, drivers, reportedInUse, onInUseChange } = this.#options;
    if (client === undefined) throw new Error('volumes that must be attached need an API server');
    const unique = uniqueVolumeName(data.driverName, data.volumeHandle);
    const cached = this.#attachments.get(unique);
    if (cached !== undefined) return cached;
    if (!this.#inUse.has(unique)) {
      this.#inUse.add(unique);
      onInUseChange();
    }
    const isReported = (): boolean => reportedInUse().includes(unique);
    const updates = (object?.spec?.nodeAllocatableUpdatePeriodSeconds ?? 0) > 0;
    const updateLimit = updates ? () => drivers.updateLimit(data.driverName, signal) : undefined;
    const attached = await awaitAttachment({ client, clock, name, signal, isReported, updateLimit });
    this.#attachments.set(unique, attached);
    return attached;
  }

  async #stage(plan: Plan): Promise<void> {
    const { data, places, driver, request, capability, attached } = plan;
    try {
      await writeVolumeData(places.deviceData, data);
      if (!(await driver.can('stageUnstage')) || this.#staged.has(keyOf(data))) return;
      await mkdir(places.staging, { recursive: true, mode: 0o750 });
      await driver.client.call(
        'nodeStageVolume',
        {
          volumeId: data.volumeHandle,
          publishContext: attached,
          stagingTargetPath: places.staging,
          volumeCapability: capability,
          secrets: await this.#secrets(secretRefOf(request, 'nodeStageSecretRef')),
          volumeContext: attributesOf(request.source),
        },
        { timeoutMs: CSI_TIMEOUT_MS, signal: request.signal },
      );
      this.#staged.add(keyOf(data));
    } catch (error) {
      const step = places.kind === 'block' ? 'MapVolume.SetUpDevice' : 'MountVolume.MountDevice';
      throw new VolumeStepError(step, data.specVolID, error);
    }
  }

  async #publish(plan: Plan): Promise<void> {
    const { data, places, driver, request, capability, attached, object } = plan;
    const { pod, source, readOnly } = request;
    const isFirst = !(await hasPodEntry(places));
    try {
      const isEphemeral = source.kind === 'inline';
      const secretRef = secretRefOf(request, 'nodePublishSecretRef');
      const context = await publishContext(
        { pod, driver: object, isEphemeral, attributes: attributesOf(source), secretRef },
        this.#options.sources,
      );
      await mkdir(dirname(places.target), { recursive: true, mode: 0o750 });
      if (places.kind === 'filesystem') await writeVolumeData(places.podEntry, data);
      else await linkDevice(places);
      await driver.client.call(
        'nodePublishVolume',
        {
          volumeId: data.volumeHandle,
          publishContext: attached,
          stagingTargetPath: !isEphemeral && (await driver.can('stageUnstage')) ? places.staging : '',
          targetPath: places.target,
          volumeCapability: capability,
          readonly: readOnly,
          secrets: context.secrets,
          volumeContext: context.attributes,
        },
        { timeoutMs: CSI_TIMEOUT_MS, signal: request.signal },
      );
    } catch (error) {
      // A running pod keeps its volume if the driver fails to publish it again.
      if (isFirst && error instanceof GrpcError && !isUncertain(error.status)) await removePodEntry(places);
      const step = places.kind === 'block' ? 'MapVolume.MapPodDevice' : 'MountVolume.SetUp';
      throw new VolumeStepError(step, data.specVolID, error);
    }
  }

  /** Expands the volume to the size. Returns false if the driver cannot expand volumes on a node. */
  async #grow(plan: Plan, sizeBytes: number): Promise<boolean> {
    const { data, places, driver, request, capability } = plan;
    if (!(await driver.can('expand'))) return false;
    try {
      await driver.client.call(
        'nodeExpandVolume',
        {
          volumeId: data.volumeHandle,
          volumePath: places.target,
          stagingTargetPath: (await driver.can('stageUnstage')) ? places.staging : '',
          capacityRange: { requiredBytes: sizeBytes },
          volumeCapability: capability,
          secrets: await this.#secrets(secretRefOf(request, 'nodeExpandSecretRef')),
        },
        { timeoutMs: CSI_TIMEOUT_MS, signal: request.signal },
      );
      return true;
    } catch (error) {
      throw new VolumeStepError('MountVolume.NodeExpandVolume', data.specVolID, error);
    }
  }

  async #secrets(reference: SecretRef | undefined): Promise<Readonly<Record<string, string>>> {
    return reference === undefined ? {} : this.#options.sources.secret(reference.namespace, reference.name);
  }

  /** Unstages the volume and removes its `vol_data.json`, unless a pod of this node still uses it. It can then be detached. */
  async #unstageUnused(driver: CsiDriver, data: VolumeData, places: Places): Promise<void> {
    if ((await this.#layout.podsWith(data, places.kind)).length > 0) return;
    const device = (await readVolumeData(places.deviceData)) ?? data;
    if (await driver.can('stageUnstage')) {
      await driver.client.call(
        'nodeUnstageVolume',
        { volumeId: device.volumeHandle, stagingTargetPath: places.staging },
        { timeoutMs: CSI_TIMEOUT_MS },
      );
    }
    this.#staged.delete(keyOf(data));
    await removeEmpty(places.staging);
    await removeVolumeData(places.deviceData);
    await removeEmpty(places.deviceData);
    if (places.kind === 'block') {
      await removeEmpty(dirname(places.deviceData));
      await removeEmpty(dirname(places.target));
    }
    const unique = uniqueVolumeName(data.driverName, data.volumeHandle);
    this.#attachments.delete(unique);
    if (this.#inUse.delete(unique)) this.#options.onInUseChange();
  }
}

function keyOf({ driverName, volumeHandle }: VolumeData): string {
  return `${driverName}^${volumeHandle}`;
}
