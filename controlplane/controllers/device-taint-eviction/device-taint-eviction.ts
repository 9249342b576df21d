/**
 * Deletes pods whose claims have a device with a `NoExecute` taint that the claim does not tolerate, or tolerates only for a
 * time that is over. The taints are those that drivers publish in ResourceSlices; kube-controller-manager applies
 * DeviceTaintRules only with a feature gate that is off by default.
 */
import { deviceKey } from '../../../api/kinds/device-claims.ts';
import { deleteDisrupted } from '../pod-disruption.ts';
import { stringifyJson } from '../../../api/codec/json.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { Pod, ResourceClaim, ResourceSlice } from '../../../api/kinds/kinds.ts';
import { pods, resourceClaims, resourceSlices } from '../../../api/client/resources.ts';
import { keyOf, ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { isPodTerminating } from '../pod-state.ts';
import { isNoExecute, podEvictionTime, type AllocatedDevice, type DeviceTaint } from './device-taints.ts';

/** Claims by their allocated devices. */
const BY_DEVICE = 'allocated-device';
/** Slices by their pool, by their pool if a device is tainted, and by their tainted devices. */
const BY_POOL = 'pool';
const BY_TAINTED_POOL = 'tainted-pool';
const BY_TAINTED_DEVICE = 'tainted-device';

/** Runs the controller. Pods and pools share one queue; the prefix of a key is `pod:` or `pool:`. */
export const runDeviceTaintEviction: RunController = (environment, signal) =>
  new DeviceTaintEviction(environment).run(signal);

class DeviceTaintEviction {
  readonly #environment: ControllerEnvironment;
  readonly #loop: ReconcileLoop;
  readonly #pods: Informer<Pod>;
  readonly #claims: Informer<ResourceClaim>;
  readonly #slices: Informer<ResourceSlice>;
  /** Keys of pods that will be deleted unless the taint is removed before. */
  readonly #planned = new Set<string>();

  constructor(environment: ControllerEnvironment) {
    this.#environment = environment;
    this.#loop = new ReconcileLoop(environment, {
      workers: 8,
      reconcile: async (key) => {
        const name = key.slice(key.indexOf(':') + 1);
        if (key.startsWith('pod:')) await this.#syncPod(name);
        else this.#syncPool(name);
      },
    });
    this.#pods = environment.informers.for(pods);
    this.#claims = environment.informers.for(resourceClaims);
    this.#slices = environment.informers.for(resourceSlices);
    this.#claims.addIndex(BY_DEVICE, ({ status }) => (status?.allocation?.devices?.results ?? []).map(deviceKey));
    this.#slices.addIndex(BY_POOL, (slice) => [poolKey(slice)]);
    this.#slices.addIndex(BY_TAINTED_POOL, (slice) => (taintedDevices(slice).size === 0 ? [] : [poolKey(slice)]));
    this.#slices.addIndex(BY_TAINTED_DEVICE, (slice) => [...taintedDevices(slice).keys()]);
  }

  run(signal: AbortSignal): Promise<void> {
    this.#pods.addHandler({
      add: (pod) => this.#podChanged(pod),
      update: (previous, pod) => {
        const moved = previous.spec?.nodeName !== pod.spec?.nodeName;
        if (moved || claimStatuses(previous) !== claimStatuses(pod)) this.#podChanged(pod);
      },
      delete: (pod) => void this.#planned.delete(keyOf(pod)),
    });
    this.#claims.addHandler({
      add: (claim) => this.#claimChanged(claim),
      update: (previous, claim) => {
        this.#claimChanged(previous);
        this.#claimChanged(claim);
      },
      delete: (claim) => this.#claimChanged(claim),
    });
    this.#slices.addHandler({
      add: (slice) => this.#sliceChanged(undefined, slice),
      update: (previous, slice) => this.#sliceChanged(previous, slice),
      delete: (slice) => this.#sliceChanged(slice, undefined),
    });
    return this.#loop.run(signal, this.#pods, this.#claims, this.#slices);
  }

  #podChanged(pod: Pod): void {
    if ((pod.spec?.resourceClaims ?? []).length > 0) this.#loop.queue.add(`pod:${keyOf(pod)}`);
  }

  #claimChanged({ metadata, status }: ResourceClaim): void {
    for (const { apiGroup = '', resource, name } of status?.reservedFor ?? [])
      if (apiGroup === '' && resource === 'pods') this.#loop.queue.add(`pod:${metadata.namespace}/${name}`);
  }

  /** Reconciles the users of devices whose taints differ. Another generation can change which slices of the pool count. */
  #sliceChanged(previous: ResourceSlice | undefined, current: ResourceSlice | undefined): void {
    const before = taintedDevices(previous);
    const after = taintedDevices(current);
    for (const device of new Set([...before.keys(), ...after.keys()]))
      if (stringifyJson(before.get(device)) !== stringifyJson(after.get(device))) this.#deviceChanged(device);
    const slice = current ?? previous;
    if (slice !== undefined && generationOf(previous) !== generationOf(current))
      this.#loop.queue.add(`pool:${poolKey(slice)}`);
  }

  #deviceChanged(device: string): void {
    for (const claim of this.#claims.byIndex(BY_DEVICE, device)) this.#claimChanged(claim);
  }

  #syncPool(pool: string): void {
    for (const slice of this.#slices.byIndex(BY_TAINTED_POOL, pool))
      for (const device of taintedDevices(slice).keys()) this.#deviceChanged(device);
  }

  async #syncPod(key: string): Promise<void> {
    const { namespace, name } = splitKey(key);
    const pod = this.#pods.get(namespace, name);
    if (pod === undefined || isPodTerminating(pod)) {
      this.#planned.delete(key);
      return;
    }
    const at = podEvictionTime(pod, {
      claim: (claimNamespace, claimName) => this.#claims.get(claimNamespace, claimName),
      taints: (device) => this.#taintsOf(device, pod.spec?.nodeName ?? ''),
    });
    if (at === undefined) {
      if (this.#planned.delete(key)) this.#report(pod, 'Cancelling deletion');
      return;
    }
    this.#planned.add(key);
    const delayMs = at - this.#environment.clock.now();
    if (delayMs > 0) return this.#loop.queue.addAfter(`pod:${key}`, delayMs);
    await tolerate(this.#evict(pod), isNotFound);
    this.#planned.delete(key);
  }

  /**
   * Returns the `NoExecute` taints of an allocated device. Slices of older generations are outdated and do not count. Slices of
   * nodes other than `nodeName` do not count either: a node can publish slices with the pools of others, to evict their pods or
   * to hide their taints.
   */
  #taintsOf(allocated: AllocatedDevice, nodeName: string): readonly DeviceTaint[] {
    const device = deviceKey(allocated);
    const concerns = ({ spec }: ResourceSlice): boolean => (spec?.nodeName ?? nodeName) === nodeName;
    const tainted = this.#slices.byIndex(BY_TAINTED_DEVICE, device).filter(concerns);
    if (tainted.length === 0) return [];
    let newest = Number.NEGATIVE_INFINITY;
    for (const slice of this.#slices.byIndex(BY_POOL, `${allocated.driver}/${allocated.pool}`).filter(concerns))
      newest = Math.max(newest, generationOf(slice) ?? newest);
    const slice = tainted.find((one) => generationOf(one) === newest);
    return taintedDevices(slice).get(device) ?? [];
  }

  /** Sets the condition and deletes the pod, which is read first: the informer may not show its deletion yet. */
  async #evict({ metadata: { namespace = '', name = '', uid = '' } }: Pod): Promise<void> {
    const pod = await this.#environment.client.get(pods, namespace, name);
    if (pod.metadata.uid !== uid || isPodTerminating(pod)) return;
    this.#report(pod, 'Marking for deletion');
    await deleteDisrupted(this.#environment, pod, {
      reason: 'DeletionByDeviceTaintManager',
      message: 'Device Taint manager: deleting due to NoExecute taint',
    });
  }

  /** Records an event about the pod. As in kube-controller-manager, it refers to the pod without its resource version. */
  #report({ metadata: { namespace = '', name = '', uid = '' } }: Pod, message: string): void {
    const pod = { apiVersion: 'v1', kind: 'Pod', namespace, name, uid };
    this.#environment.recorder.event(pod, 'Normal', 'DeviceTaintManagerEviction', message);
  }
}

const poolKey = ({ spec }: ResourceSlice): string => `${spec?.driver}/${spec?.pool.name}`;

const generationOf = (slice: ResourceSlice | undefined): number | undefined => slice?.spec?.pool.generation;

const claimStatuses = ({ status }: Pod): string | undefined => stringifyJson(status?.resourceClaimStatuses);

/** Returns the `NoExecute` taints of a slice by the keys of their devices. */
function taintedDevices(slice: ResourceSlice | undefined): ReadonlyMap<string, readonly DeviceTaint[]> {
  const found = new Map<string, readonly DeviceTaint[]>();
  for (const { name, taints = [] } of slice?.spec?.devices ?? []) {
    const evicting = taints.filter(isNoExecute);
    if (slice !== undefined && evicting.length > 0) found.set(`${poolKey(slice)}/${name}`, evicting);
  }
  return found;
}
