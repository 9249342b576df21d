/** Records the devices of each container, with the allocation responses of their plugins. */
import type { DeviceRunOptions } from '../../../runtime/kuberuntime/device-options.ts';
import type { MessageCodec } from '../../../../api/grpc/codec.ts';
import type { PodDevicesEntry } from './device-checkpoint.ts';
import type { AllocateAnswer } from './device-endpoint.ts';

interface DeviceAllocation {
  readonly resource: string;
  /** Device ids by NUMA node; -1 for devices without a NUMA node. */
  readonly byNode: ReadonlyMap<number, readonly string[]>;
  readonly answer: AllocateAnswer;
}

/** Returns the ids of all devices of an allocation, whatever their NUMA nodes are. */
export const idsOf = ({ byNode }: DeviceAllocation): Set<string> => new Set([...byNode.values()].flat());

/** Owns the allocations by pod, container and resource. */
export class PodDevices {
  readonly #pods = new Map<string, Map<string, Map<string, DeviceAllocation>>>();

  /** Returns the allocations of a container by resource. */
  ofContainer(podUid: string, container: string): ReadonlyMap<string, DeviceAllocation> {
    return this.#pods.get(podUid)?.get(container) ?? new Map();
  }

  /** Replaces the allocation of one resource of a container. */
  insert(podUid: string, container: string, allocation: DeviceAllocation): void {
    const containers = this.#pods.get(podUid) ?? new Map<string, Map<string, DeviceAllocation>>();
    const resources = containers.get(container) ?? new Map<string, DeviceAllocation>();
    resources.set(allocation.resource, allocation);
    containers.set(container, resources);
    this.#pods.set(podUid, containers);
  }

  /** Removes the allocations of a pod. Returns whether it had any. */
  delete(podUid: string): boolean {
    return this.#pods.delete(podUid);
  }

  pods(): readonly string[] {
    return [...this.#pods.keys()];
  }

  /** Returns the ids of a resource's allocated devices. */
  inUse(resource: string): Set<string> {
    const ids = new Set<string>();
    for (const { allocation } of this.#all())
      if (allocation.resource === resource) for (const id of idsOf(allocation)) ids.add(id);
    return ids;
  }

  /** Returns the number of devices by resource that containers have. */
  counts(): ReadonlyMap<string, number> {
    const resources = new Set([...this.#all()].map(({ allocation }) => allocation.resource));
    return new Map([...resources].map((resource) => [resource, this.inUse(resource).size]));
  }

  /** Whether any container has a device of the resource. */
  isAllocated(resource: string): boolean {
    return this.inUse(resource).size > 0;
  }

  /** Returns the uids of pods that have one of the devices. */
  podsWith(resource: string, ids: ReadonlySet<string>): readonly string[] {
    const found = new Set<string>();
    for (const { podUid, allocation } of this.#all())
      if (allocation.resource === resource && !idsOf(allocation).isDisjointFrom(ids)) found.add(podUid);
    return [...found];
  }

  /** Returns all allocations in the form of the checkpoint. */
  entries(codec: MessageCodec): readonly PodDevicesEntry[] {
    return [...this.#all()].map(({ podUid, container, allocation }) => ({
      PodUID: podUid,
      ContainerName: container,
      ResourceName: allocation.resource,
      DeviceIDs: Object.fromEntries(allocation.byNode),
      AllocResp: codec.encode(allocation.answer).toString('base64'),
    }));
  }

  /** Adds the allocations of a checkpoint. */
  restore(entries: readonly PodDevicesEntry[], codec: MessageCodec): void {
    for (const { PodUID, ContainerName, ResourceName, DeviceIDs, AllocResp } of entries)
      this.insert(PodUID, ContainerName, {
        resource: ResourceName,
        byNode: new Map(Object.entries(DeviceIDs).map(([node, ids]) => [Number(node), ids])),
        answer: codec.decode(Buffer.from(AllocResp, 'base64')) as AllocateAnswer,
      });
  }

  /** Returns what all devices of a container need. The first of two with one name or path counts. */
  runOptions(podUid: string, container: string): DeviceRunOptions {
    const env = new Map<string, string>();
    const mounts = new Map<string, DeviceRunOptions['mounts'][number]>();
    const devices = new Map<string, DeviceRunOptions['devices'][number]>();
    const annotations: Record<string, string> = {};
    const cdiDevices = new Set<string>();
    for (const { answer } of this.ofContainer(podUid, container).values()) {
      for (const [name, value] of Object.entries(answer.envs)) if (!env.has(name)) env.set(name, value);
      for (const { containerPath, hostPath, readOnly } of answer.mounts)
        if (!mounts.has(containerPath)) mounts.set(containerPath, { containerPath, hostPath, readonly: readOnly });
      for (const device of answer.devices)
        if (!devices.has(device.containerPath)) devices.set(device.containerPath, device);
      for (const [name, value] of Object.entries(answer.annotations)) annotations[name] ??= value;
      for (const { name } of answer.cdiDevices) cdiDevices.add(name);
    }
    return {
      env,
      mounts: [...mounts.values()],
      devices: [...devices.values()],
      annotations,
      cdiDevices: [...cdiDevices],
    };
  }

  *#all(): Generator<{ readonly podUid: string; readonly container: string; readonly allocation: DeviceAllocation }> {
    for (const [podUid, containers] of this.#pods)
      for (const [container, resources] of containers)
        for (const allocation of resources.values()) yield { podUid, container, allocation };
  }
}
