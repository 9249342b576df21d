/** Holds a node with its pods and the sums of their requests. */
import type { Node } from '../../api/kinds/kinds.ts';
import { PodInfo } from './pod-info.ts';
import { amountOf, resourcesOf, type Resources } from './pod-requests.ts';

/** A node as filters see it. Adding and removing pods updates the sums. */
export class NodeInfo {
  readonly node: Node;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly allocatable: Resources;
  readonly allowedPods: number;
  /** The size of each image in bytes, by every name of the image. */
  readonly images: ReadonlyMap<string, number>;
  readonly pods: Map<string, PodInfo>;
  /** The pods with required anti-affinity. There are few, and each must be checked for every scheduled pod. */
  readonly antiAffine: Map<string, PodInfo>;
  /** The pods whose terms change the scores of other pods. */
  readonly attracting: Map<string, PodInfo>;
  /** The number of pods of each controlling owner. */
  readonly podsOfController: Map<string, number>;
  readonly requested: Resources;
  readonly requestedForScoring: Resources;

  /** `former` is an earlier state of the same node, whose pods are kept. */
  constructor(node: Node, former?: NodeInfo) {
    this.node = node;
    this.name = node.metadata.name ?? '';
    this.labels = node.metadata.labels ?? {};
    if (former?.node === node) {
      this.allocatable = former.allocatable;
      this.allowedPods = former.allowedPods;
      this.images = former.images;
    } else {
      const allocatable = node.status?.allocatable ?? {};
      this.allocatable = resourcesOf(allocatable);
      this.allowedPods = amountOf('pods', allocatable['pods'] ?? '0');
      this.images = imagesOf(node);
    }
    this.pods = new Map(former?.pods);
    this.antiAffine = new Map(former?.antiAffine);
    this.attracting = new Map(former?.attracting);
    this.podsOfController = new Map(former?.podsOfController);
    this.requested = new Map(former?.requested);
    this.requestedForScoring = new Map(former?.requestedForScoring);
  }

  get taints() {
    return this.node.spec?.taints ?? [];
  }

  add(info: PodInfo): void {
    this.remove(info.uid);
    this.pods.set(info.uid, info);
    if (info.requiredAntiAffinity.length > 0) this.antiAffine.set(info.uid, info);
    if (info.attractions.length > 0) this.attracting.set(info.uid, info);
    this.#count(info, 1);
  }

  remove(uid: string): void {
    const info = this.pods.get(uid);
    if (info === undefined) return;
    this.pods.delete(uid);
    this.antiAffine.delete(uid);
    this.attracting.delete(uid);
    this.#count(info, -1);
  }

  /** Returns a copy. Adding and removing pods there does not change this one. */
  clone(): NodeInfo {
    return new NodeInfo(this.node, this);
  }

  #count({ requests, controller }: PodInfo, by: 1 | -1): void {
    change(this.requested, requests.actual, by);
    change(this.requestedForScoring, requests.forScoring, by);
    if (controller === undefined) return;
    const count = (this.podsOfController.get(controller) ?? 0) + by;
    if (count === 0) this.podsOfController.delete(controller);
    else this.podsOfController.set(controller, count);
  }
}

function change(into: Resources, amounts: Resources, sign: 1 | -1): void {
  for (const [name, amount] of amounts) into.set(name, (into.get(name) ?? 0) + sign * amount);
}

function imagesOf(node: Node): Map<string, number> {
  const images = new Map<string, number>();
  for (const image of node.status?.images ?? []) {
    for (const name of image.names ?? []) images.set(name, image.sizeBytes ?? 0);
  }
  return images;
}
