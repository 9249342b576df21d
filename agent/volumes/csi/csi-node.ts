/**
 * Reports this node's CSI drivers to the cluster: the CSINode object (drivers, topology keys, volume limits), the node's
 * annotation with its ids for the drivers, and its topology labels. Writes run one at a time and start from the newest objects.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { untilDone } from '../../../api/machinery/background.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Client } from '../../../api/client/client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { CSINode, Node } from '../../../api/kinds/kinds.ts';
import { csiNodes, nodes } from '../../../api/client/resources.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { isAlreadyExists, isConflict, isNotFound } from '../../../api/meta/status-error.ts';
import { INT32_MAX } from '../../../api/meta/integers.ts';

/** What a driver reports about this node when it registers. */
export interface DriverOnNode {
  readonly driver: string;
  readonly nodeId: string;
  /** 0 means no limit. */
  readonly maxVolumes: number;
  readonly topology: Readonly<Record<string, string>>;
}

const ANNOTATION_NODE_IDS = 'csi.volume.kubernetes.io/nodeid';
/** The maximum number of attempts to write the CSINode while others write it as well. */
const MAX_ATTEMPTS = 5;
const RETRY_MS = 200;
const MAX_RETRY_MS = 30_000;

type DriverEntry = NonNullable<NonNullable<CSINode['spec']>['drivers']>[number];

/** Owns what the Node and the CSINode state about the drivers of this node. Methods reject with the error of the API server. */
export class CsiNode {
  readonly #client: Client;
  readonly #nodeName: string;
  /** Changes of the node and its CSINode must not overlap. */
  readonly #changes = new SerialQueue();

  constructor(options: { readonly client: Client; readonly nodeName: string }) {
    this.#client = options.client;
    this.#nodeName = options.nodeName;
  }

  /** Creates the CSINode as soon as the node exists, even without drivers, because schedulers count volumes by it. */
  async keep(clock: Clock, logger: Logger, signal: AbortSignal): Promise<void> {
    await untilDone(() => this.#changes.run(() => this.#current()), {
      clock,
      signal,
      backoff: new Backoff({ firstMs: RETRY_MS, longestMs: MAX_RETRY_MS }),
      onError: (error) => logger.debug({ node: this.#nodeName, err: error }, 'Cannot create the CSINode yet, retrying'),
    });
  }

  /** Writes a registered driver to the Node and the CSINode. Rejects if a label has another value already. */
  install({ driver, nodeId, maxVolumes, topology }: DriverOnNode): Promise<void> {
    return this.#changes.run(async () => {
      await this.#updateNode((node) => {
        for (const [key, value] of Object.entries(topology)) {
          const existing = ownMember(node.metadata.labels, key);
          if (existing !== undefined && existing !== value)
            throw new Error(
              `detected topology value collision: driver reported "${key}":"${value}" but existing label is "${key}":"${existing}"`,
            );
        }
        return { labels: topology, nodeIds: { ...nodeIdsOf(node), [driver]: nodeId } };
      });
      await this.#updateDrivers(driver, entryOf({ driver, nodeId, maxVolumes, topology }));
    });
  }

  /** Writes what a driver reports now to the CSINode. */
  update(reported: DriverOnNode): Promise<void> {
    return this.#changes.run(() => this.#updateDrivers(reported.driver, entryOf(reported)));
  }

  /** Removes a driver from the Node and the CSINode. The labels of its topology stay. */
  uninstall(driver: string): Promise<void> {
    return this.#changes.run(async () => {
      await this.#updateDrivers(driver, undefined);
      await this.#updateNode((node) => {
        const { [driver]: _gone, ...nodeIds } = nodeIdsOf(node);
        return { labels: {}, nodeIds };
      });
    });
  }

  async #updateNode(
    change: (node: Node) => { readonly labels: object; readonly nodeIds: Readonly<Record<string, string>> },
  ): Promise<void> {
    const node = (await this.#client.get(nodes, '', this.#nodeName)) as Node;
    const { labels, nodeIds } = change(node);
    const text = Object.keys(nodeIds).length === 0 ? null : JSON.stringify(nodeIds);
    const before = node.metadata.annotations?.[ANNOTATION_NODE_IDS] ?? null;
    const hasLabels = Object.entries(labels).every(([key, value]) => ownMember(node.metadata.labels, key) === value);
    if (hasLabels && text === before) return;
    const metadata = { labels, annotations: { [ANNOTATION_NODE_IDS]: text } };
    await this.#client.patch(nodes, '', this.#nodeName, { type: 'strategic', body: { metadata } });
  }

  async #updateDrivers(name: string, entry: DriverEntry | undefined): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const current = await this.#current();
      const others = (current.spec?.drivers ?? []).filter((driver) => driver.name !== name);
      const drivers = entry === undefined ? others : [...others, entry];
      try {
        await this.#client.update(csiNodes, { ...current, spec: { ...current.spec, drivers } } as KubeObject);
        return;
      } catch (error) {
        if (attempt === MAX_ATTEMPTS || !(isConflict(error) || isNotFound(error))) throw error;
      }
    }
  }

  async #current(): Promise<CSINode> {
    try {
      return (await this.#client.get(csiNodes, '', this.#nodeName)) as CSINode;
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
    const node = await this.#client.get(nodes, '', this.#nodeName);
    const owner = { apiVersion: 'v1', kind: 'Node', name: this.#nodeName, uid: node.metadata.uid ?? '' };
    try {
      return (await this.#client.create(csiNodes, '', {
        apiVersion: 'storage.k8s.io/v1',
        kind: 'CSINode',
        metadata: { name: this.#nodeName, ownerReferences: [owner] },
        spec: { drivers: [] },
      })) as CSINode;
    } catch (error) {
      if (!isAlreadyExists(error)) throw error;
      return (await this.#client.get(csiNodes, '', this.#nodeName)) as CSINode;
    }
  }
}

function entryOf({ driver, nodeId, maxVolumes, topology }: DriverOnNode): DriverEntry {
  const topologyKeys = Object.keys(topology).toSorted();
  return {
    name: driver,
    nodeID: nodeId,
    ...(topologyKeys.length === 0 ? {} : { topologyKeys }),
    ...(maxVolumes > 0 ? { allocatable: { count: Math.min(maxVolumes, INT32_MAX) } } : {}),
  };
}

function nodeIdsOf(node: Node): Readonly<Record<string, string>> {
  const text = node.metadata.annotations?.[ANNOTATION_NODE_IDS] ?? '';
  return text === '' ? {} : (JSON.parse(text) as Record<string, string>);
}
