/**
 * Manages dynamic resources on the node. Before a pod's containers start, the drivers prepare the devices of the pod's
 * allocated ResourceClaims, and the runtime receives the devices as CDI device names. When the last pod of a claim has
 * terminated, the drivers unprepare it. Prepared claims survive a restart in `dra_manager_state`.
 */
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import type { Logger } from '../../../../api/component/logger.ts';
import type { Client } from '../../../../api/client/client.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import { resourceClaims } from '../../../../api/client/resources.ts';
import { KeyedQueue } from '../../../../api/machinery/serial-queue.ts';
import type { Container, ContainerStatusJson, Pod } from '../../../base/model/pod.ts';
import type { GrpcCallObserver } from '../../../../api/grpc/grpc-client.ts';
import { boundedDetails } from '../../../../api/grpc/grpc-error.ts';
import type { PluginHandler } from '../../../volumes/plugins/plugin-manager.ts';
import { readStateFile, StateWriter } from '../checkpoint-file.ts';
import { checkAnswer } from '../devicemanager/plugin-limits.ts';
import { DraDrivers } from './dra-drivers.ts';
import { healthKey } from './driver-health.ts';

interface ClaimManagerOptions {
  readonly rootDirectory: string;
  /** Absent on a host without an API server, which has no claims. */
  readonly client: Client | undefined;
  readonly nodeName: string;
  readonly logger: Logger;
  readonly clock: Clock;
  /** Called with the uids of the pods that have devices whose health has changed. */
  readonly onPodsChange?: (uids: readonly string[]) => void;
  readonly observe?: (operation: 'PrepareResources' | 'UnprepareResources', failed: boolean, tookMs: number) => void;
  /** Returns the observer of calls to the driver of this name. */
  readonly observeCalls?: (driver: string) => GrpcCallObserver;
}

interface PreparedDevice {
  readonly PoolName: string;
  readonly DeviceName: string;
  readonly RequestNames: readonly string[];
  readonly CDIDeviceIDs: readonly string[];
}

interface PreparedClaim {
  readonly ClaimUID: string;
  readonly ClaimName: string;
  readonly Namespace: string;
  /** The keys are pod uids. */
  readonly PodUIDs: Record<string, object>;
  readonly DriverState: Record<string, { readonly Devices: readonly PreparedDevice[] }>;
}

/** The devices of one claim that a container uses. */
export interface ClaimedDevices {
  readonly claim: string;
  readonly namespace: string;
  readonly devices: readonly {
    readonly driver: string;
    readonly pool: string;
    readonly device: string;
    readonly cdiIds: readonly string[];
  }[];
}

/** The fields of a ResourceClaim that the manager reads. */
interface ClaimJson {
  readonly metadata: { readonly name: string; readonly namespace: string; readonly uid: string };
  readonly status?: {
    readonly reservedFor?: readonly { readonly uid: string }[];
    readonly allocation?: { readonly devices?: { readonly results?: readonly { readonly driver: string }[] } };
  };
}

const STATE_FILE = 'dra_manager_state';
const UNPREPARED = { Devices: [] as const };
const CALL_OPTIONS = { timeoutMs: 45_000 };

/** Owns the prepared claims and the drivers' endpoints. */
export class ClaimManager {
  readonly #options: ClaimManagerOptions;
  readonly #drivers: DraDrivers;
  /** The claims that are prepared or being prepared, by uid. */
  readonly #claims = new Map<string, PreparedClaim>();
  /** The claims of which all drivers have answered in this process. A driver may prepare a claim without any device. */
  readonly #ready = new WeakSet<PreparedClaim>();
  /** The queue by namespace and name, because preparing and unpreparing one claim must not overlap. */
  readonly #queue = new KeyedQueue();
  readonly #writer: StateWriter;

  private constructor(options: ClaimManagerOptions) {
    this.#options = options;
    const { client, clock, logger, nodeName, rootDirectory, observeCalls } = options;
    const path = join(rootDirectory, STATE_FILE);
    this.#writer = new StateWriter({ path, what: 'the checkpoint of resource claims', clock, logger });
    const onHealth = (driver: string, devices: ReadonlySet<string>): void => this.#healthChanged(driver, devices);
    this.#drivers = new DraDrivers({ client, nodeName, clock, logger, onHealth, observeCalls });
  }

  /** Creates the manager with the prepared claims of its checkpoint. A damaged checkpoint is logged. */
  static async start(options: ClaimManagerOptions): Promise<ClaimManager> {
    const manager = new ClaimManager(options);
    const path = join(options.rootDirectory, STATE_FILE);
    try {
      const json = (await readStateFile(path)) as { Data: string; Checksum: number } | undefined;
      if (json === undefined) return manager;
      if (crc32(json.Data) !== json.Checksum) throw new Error('checkpoint is corrupted');
      const { Entries } = JSON.parse(json.Data) as { Entries: readonly PreparedClaim[] | null };
      for (const claim of Entries ?? []) manager.#claims.set(claim.ClaimUID, claim);
    } catch (error) {
      options.logger.error(
        { err: error, path },
        'Cannot read the checkpoint of resource claims, preparing the claims again',
      );
    }
    return manager;
  }

  /** Deletes the ResourceSlices of drivers that are not there, and follows the health of devices, until the signal aborts. */
  run(signal: AbortSignal): Promise<void> {
    return this.#drivers.run(signal);
  }

  /** Returns the handler by which drivers register with the plugin manager. */
  handler(): PluginHandler {
    return this.#drivers.handler();
  }

  /** Returns the uids of the pods whose claims are prepared or being prepared. A pod with several claims occurs repeatedly. */
  pods(): readonly string[] {
    return [...this.#claims.values()].flatMap(({ PodUIDs }) => Object.keys(PodUIDs));
  }

  /** Prepares the devices of a pod's claims. It is idempotent. Throws the error that keeps the pod from starting. */
  async prepare(pod: Pod): Promise<void> {
    const names = (pod.spec.resourceClaims ?? []).map((reference) => claimName(pod, reference));
    for (const name of [...names, pod.status?.extendedResourceClaimStatus?.resourceClaimName]) {
      if (name === undefined) continue;
      await this.#queue.run(`${pod.metadata.namespace}/${name}`, async () => {
        if (this.#isPrepared(pod, name)) return;
        await this.#observed('PrepareResources', () => this.#prepareClaim(pod, name));
      });
    }
  }

  #isPrepared(pod: Pod, name: string): boolean {
    return [...this.#claims.values()].some(
      (claim) => claim.ClaimName === name && isHeldBy(claim, pod) && this.#isReady(claim),
    );
  }

  /** Whether all drivers have prepared their devices, in this process or before its start. */
  #isReady(claim: PreparedClaim): boolean {
    return this.#ready.has(claim) || Object.values(claim.DriverState).every(({ Devices }) => Devices.length > 0);
  }

  async #observed(operation: 'PrepareResources' | 'UnprepareResources', work: () => Promise<void>): Promise<void> {
    const { clock, observe } = this.#options;
    const fromMs = clock.monotonic();
    let failed = true;
    try {
      await work();
      failed = false;
    } finally {
      observe?.(operation, failed, clock.monotonic() - fromMs);
    }
  }

  /** The number of claims that are prepared or being prepared. */
  get count(): number {
    return this.#claims.size;
  }

  /** Returns the number of claims that are prepared or being prepared, by driver. */
  inUse(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { DriverState } of this.#claims.values())
      for (const driver of Object.keys(DriverState)) counts.set(driver, (counts.get(driver) ?? 0) + 1);
    return counts;
  }

  async #prepareClaim(pod: Pod, name: string): Promise<void> {
    const { client } = this.#options;
    const { uid, namespace } = pod.metadata;
    if (client === undefined) throw new Error(`cannot read ResourceClaim ${name} without an API server`);
    const claim = (await client.get(resourceClaims, namespace, name).catch((error: unknown) => {
      throw new Error(`fetch ResourceClaim ${name}: ${(error as Error).message}`, { cause: error });
    })) as unknown as ClaimJson;
    const { status } = claim;
    if (!(status?.reservedFor ?? []).some((entry) => entry.uid === uid))
      throw new Error(
        `pod ${pod.metadata.name}(${uid}) is not allowed to use ResourceClaim ${name}(${claim.metadata.uid})`,
      );
    if (status?.allocation === undefined) throw new Error(`ResourceClaim ${name} is not allocated yet`);
    const replaced = [...this.#claims.values()].find(
      (other) => other.ClaimName === name && other.Namespace === namespace && other.ClaimUID !== claim.metadata.uid,
    );
    if (replaced !== undefined)
      throw new Error(
        `old ResourceClaim with same name ${name} and different UID ${replaced.ClaimUID} still exists (previous pod force-deleted?!)`,
      );
    const drivers = new Set((status.allocation.devices?.results ?? []).map(({ driver }) => driver));
    // Throws before the claim is recorded: a deleted pod would otherwise wait until the missing driver unprepares it.
    for (const driver of drivers) this.#drivers.newestInstance(driver);
    const prepared: PreparedClaim = this.#claims.get(claim.metadata.uid) ?? {
      ClaimUID: claim.metadata.uid,
      ClaimName: name,
      Namespace: namespace,
      PodUIDs: {},
      DriverState: {},
    };
    for (const driver of drivers) {
      if (Object.hasOwn(prepared.DriverState, driver)) continue;
      prepared.DriverState[driver] = UNPREPARED;
      this.#ready.delete(prepared);
    }
    // Recorded before the first call: what a driver prepares is unprepared even if another driver, or the agent, fails.
    prepared.PodUIDs[uid] = {};
    this.#claims.set(claim.metadata.uid, prepared);
    await this.#save();
    if (this.#isReady(prepared)) return;
    for (const [driver, { Devices }] of Object.entries(prepared.DriverState))
      if (Devices.length === 0) prepared.DriverState[driver] = { Devices: await this.#prepareWith(driver, claim) };
    this.#ready.add(prepared);
    await this.#save();
  }

  async #prepareWith(driver: string, { metadata }: ClaimJson): Promise<readonly PreparedDevice[]> {
    const { namespace, uid, name } = metadata;
    const { claims } = await this.#drivers.call(driver, (client) =>
      client.call('nodePrepareResources', { claims: [{ namespace, uid, name }] }, CALL_OPTIONS),
    );
    const answer = claims.find(({ key }) => key === metadata.uid)?.value;
    if (answer === null || answer === undefined)
      throw new Error(`NodePrepareResources skipped ResourceClaim ${metadata.name}`);
    if (answer.error !== '')
      throw new Error(
        `NodePrepareResources failed for ResourceClaim ${metadata.name}: ${boundedDetails(answer.error)}`,
      );
    checkAnswer(answer.devices, `the response of DRA driver ${driver} for ResourceClaim ${metadata.name}`);
    return answer.devices.map(({ poolName, deviceName, requestNames, cdiDeviceIds }) => ({
      PoolName: poolName,
      DeviceName: deviceName,
      RequestNames: requestNames,
      CDIDeviceIDs: cdiDeviceIds,
    }));
  }

  /** Returns the CDI names of the devices of the container's claims. */
  cdiDevices(pod: Pod, container: Container): readonly string[] {
    const claimed = this.claimed(pod, container);
    return [...new Set(claimed.flatMap(({ devices }) => devices.flatMap(({ cdiIds }) => cdiIds)))];
  }

  /** Returns the devices of each of the container's claims, limited to one request if the container names one. */
  claimed(pod: Pod, container: Container): readonly ClaimedDevices[] {
    return claimUsesOf(pod, container).flatMap((use) => this.#devicesOf(pod, use));
  }

  #devicesOf(pod: Pod, { claim, request }: ClaimUse): readonly ClaimedDevices[] {
    return [...this.#claims.values()]
      .filter((prepared) => prepared.ClaimName === claim && isHeldBy(prepared, pod))
      .map(({ ClaimName, Namespace, DriverState }) => ({
        claim: ClaimName,
        namespace: Namespace,
        devices: Object.entries(DriverState).flatMap(([driver, { Devices }]) =>
          Devices.filter(({ RequestNames }) => isOfRequest(RequestNames, request)).map((device) => ({
            driver,
            pool: device.PoolName,
            device: device.DeviceName,
            cdiIds: device.CDIDeviceIDs,
          })),
        ),
      }));
  }

  /**
   * Returns the devices of a container's claims with their health, by claim or request, or `undefined` if it has none. Init
   * containers and claims for extended resources have no entries.
   */
  deviceHealth(pod: Pod, container: string): ContainerStatusJson['allocatedResourcesStatus'] {
    const { resources = {} } = pod.spec.containers.find(({ name }) => name === container) ?? {};
    const rows = (resources.claims ?? []).flatMap((use) => {
      const { name, request } = use;
      const devices = this.#devicesOf(pod, useOf(pod, use)).flatMap((claimed) => claimed.devices);
      const health = new Map(
        devices.map(({ driver, pool, device, cdiIds: [first] }) => [
          first ?? `${driver}/${pool}/${device}`,
          this.#drivers.healthOf(driver, pool, device),
        ]),
      );
      const resource = request === undefined || request === '' ? `claim:${name}` : `claim:${name}/${request}`;
      const entries = [...health].map(([resourceID, one]) => ({ resourceID, ...one }));
      return entries.length === 0 ? [] : [{ name: resource, resources: entries }];
    });
    return rows.length === 0 ? undefined : rows;
  }

  #healthChanged(driver: string, changed: ReadonlySet<string>): void {
    const claims = [...this.#claims.values()].filter(({ DriverState }) =>
      DriverState[driver]?.Devices.some(({ PoolName, DeviceName }) => changed.has(healthKey(PoolName, DeviceName))),
    );
    const uids = new Set(claims.flatMap(({ PodUIDs }) => Object.keys(PodUIDs)));
    if (uids.size > 0) this.#options.onPodsChange?.([...uids]);
  }

  /**
   * Releases the claims of a pod, and unprepares those that no other pod uses. Logs a driver's error; `pods` returns the
   * pod until all its claims are released.
   */
  async release(podUid: string): Promise<void> {
    const claimsOfPod = [...this.#claims.values()].filter(({ PodUIDs }) => PodUIDs[podUid] !== undefined);
    for (const claim of claimsOfPod)
      await this.#queue.run(`${claim.Namespace}/${claim.ClaimName}`, () => this.#releaseClaim(claim, podUid));
    await this.#save();
  }

  async #releaseClaim(claim: PreparedClaim, podUid: string): Promise<void> {
    if (claim.PodUIDs[podUid] === undefined) return;
    const isLast = Object.keys(claim.PodUIDs).length === 1;
    try {
      if (isLast) await this.#observed('UnprepareResources', () => this.#unprepare(claim));
      delete claim.PodUIDs[podUid];
      if (isLast) this.#claims.delete(claim.ClaimUID);
    } catch (error) {
      this.#options.logger.warn({ err: error, claim: claim.ClaimName }, 'Cannot unprepare a resource claim yet');
    }
  }

  async #unprepare({ ClaimUID, ClaimName, Namespace, DriverState }: PreparedClaim): Promise<void> {
    const request = { claims: [{ namespace: Namespace, uid: ClaimUID, name: ClaimName }] };
    for (const driver of Object.keys(DriverState)) {
      const { claims } = await this.#drivers.call(driver, (client) =>
        client.call('nodeUnprepareResources', request, CALL_OPTIONS),
      );
      const error = claims.find(({ key }) => key === ClaimUID)?.value?.error ?? '';
      if (error !== '')
        throw new Error(`NodeUnprepareResources failed for ResourceClaim ${ClaimName}: ${boundedDetails(error)}`);
    }
  }

  #save(): Promise<void> {
    return this.#writer.write(() => {
      const data = JSON.stringify({
        kind: 'DRACheckpoint',
        apiVersion: 'checkpoint.dra.kubelet.k8s.io/v1',
        Entries: [...this.#claims.values()],
      });
      return { Data: data, Checksum: crc32(data) };
    });
  }
}

function isHeldBy({ Namespace, PodUIDs }: PreparedClaim, { metadata }: Pod): boolean {
  return Namespace === metadata.namespace && PodUIDs[metadata.uid] !== undefined;
}

/**
 * Returns the ResourceClaim's name; `undefined` if the pod's claim needs none. Throws if the ResourceClaim is not created yet.
 */
function claimName(
  pod: Pod,
  reference: { readonly name: string; readonly resourceClaimName?: string },
): string | undefined {
  if (reference.resourceClaimName !== undefined) return reference.resourceClaimName;
  const created = (pod.status?.resourceClaimStatuses ?? []).find(({ name }) => name === reference.name);
  if (created === undefined) throw new Error(`pod claim ${reference.name}: resource claim not created yet`);
  return created.resourceClaimName;
}

/** What a container uses: a claim, or one request of it. */
interface ClaimUse {
  /** The name of the claim, if it is known. */
  readonly claim: string | undefined;
  readonly request?: string | undefined;
}

type ContainerClaim = NonNullable<NonNullable<Container['resources']>['claims']>[number];

function useOf(pod: Pod, { name, request }: ContainerClaim): ClaimUse {
  const reference = (pod.spec.resourceClaims ?? []).find((entry) => entry.name === name);
  return { claim: reference === undefined ? undefined : claimName(pod, reference), request };
}

/** Returns the claims and requests that the container uses, including those of the claim for extended resources. */
function claimUsesOf(pod: Pod, { name, resources = {} }: Container): readonly ClaimUse[] {
  const claimUses = (resources.claims ?? []).map((use) => useOf(pod, use));
  const { resourceClaimName, requestMappings = [] } = pod.status?.extendedResourceClaimStatus ?? {};
  const extended = requestMappings.filter(
    (mapping) => mapping.containerName === name && Object.hasOwn(resources.requests ?? {}, mapping.resourceName),
  );
  return [...claimUses, ...extended.map(({ requestName }) => ({ claim: resourceClaimName, request: requestName }))];
}

/**
 * Whether a device serves a request. A device without request names serves every request, and `a/b` is a subrequest of
 * request `a`.
 */
function isOfRequest(names: readonly string[], request: string | undefined): boolean {
  if (request === undefined || request === '' || names.length === 0) return true;
  return names.some((name) => name === request || name.startsWith(`${request}/`));
}
