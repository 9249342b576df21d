/** Runs the nodes of the tested cluster: agents on runtimes in memory, which change to another server when theirs fails. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Agent } from '../../../agent/main.ts';
import { silentLogger } from '../../../api/component/logger.ts';
import { systemClock } from '../../../api/machinery/clock.ts';
import { newKubeconfig, writeKubeconfig } from '../../../api/client/kubeconfig.ts';
import { startAgentInMemory } from '../../fakes/agent-in-memory.ts';
import { createFakeHost, type FakeHost, FakeRuntime } from '../../fakes/fake-runtime.ts';
import type { SoakServer } from './servers.ts';
import { type Start, WORKLOAD_IMAGE } from './workload-history.ts';

const STATUS_MS = 2000;

/** A node with a runtime in memory. */
export class SoakNode {
  readonly name: string;
  /** The containers that were started on the node, in order. */
  readonly starts: Start[] = [];
  readonly #directory = mkdtempSync(join(tmpdir(), 'orchlet-soak-node-'));
  readonly #host: FakeHost = createFakeHost([WORKLOAD_IMAGE]);
  #agent: Agent | undefined;

  private constructor(name: string) {
    this.name = name;
    this.#host.listeners.add(({ type, podUid }) => {
      if (type === 'started') this.starts.push({ node: name, podUid });
    });
  }

  /** Resolves when the agent runs, which may be before its node is ready. */
  static async start(name: string, servers: readonly SoakServer[]): Promise<SoakNode> {
    const node = new SoakNode(name);
    const [server = '', ...otherServers] = servers.map(({ url }) => url);
    const [{ ca, token } = { ca: '', token: '' }] = servers;
    const kubeconfig = join(node.#directory, 'agent.kubeconfig');
    const credentials = { token };
    await writeKubeconfig(
      kubeconfig,
      newKubeconfig({ cluster: 'soak', server, otherServers, ca, user: 'soak', credentials }),
    );
    const flags = { hostnameOverride: name, kubeconfig, nodeStatusUpdateFrequency: STATUS_MS };
    const runtime = new FakeRuntime(systemClock, node.#host);
    node.#agent = await startAgentInMemory(node.#directory, flags, { runtime, logger: silentLogger });
    return node;
  }

  /** The pods of which a container runs. */
  get running(): readonly string[] {
    const containers = [...this.#host.containers.values()].filter(({ status }) => status.state === 'running');
    return containers.map(({ status }) => status.labels['io.kubernetes.pod.uid'] ?? '');
  }

  async close(): Promise<void> {
    await this.#agent?.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
