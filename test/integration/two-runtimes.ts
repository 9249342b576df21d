/**
 * Runs a control plane with a node for each container runtime, for tests that must pass on both. All pods of a file are created
 * when it starts, because starting takes the longest. They are bound by the test, so that the agents decide about them without
 * a scheduler.
 */
import assert from 'node:assert/strict';
import { AgentProcess, type RuntimeName } from './agent-process.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { type KubectlResult } from './kubectl.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

/** The runtimes on which each test of a file runs. */
export const RUNTIMES: readonly RuntimeName[] = ['docker', 'containerd'];
/** The reason why tests on both runtimes are skipped, or `false`. */
export const skipWithoutBoth = skipWithoutDocker === false ? skipWithoutContainerd : skipWithoutDocker;

export interface PodOptions {
  readonly spec?: object;
  readonly container?: object;
  readonly containers?: readonly object[];
  readonly metadata?: object;
}

/** A control plane with one node on Docker and one on containerd. */
export class TwoRuntimes {
  readonly #agents = new Map<RuntimeName, AgentProcess>();
  readonly #preparations: (() => object[])[] = [];
  #plane: ControlPlaneProcess | undefined;

  /** Adds a pod for each runtime, `<name>-<runtime>`, with the container `main`. */
  prepare(name: string, options: PodOptions | ((on: RuntimeName) => PodOptions)): void {
    this.prepareObjects(() =>
      RUNTIMES.map((on) => this.#podOf(on, name, typeof options === 'function' ? options(on) : options)),
    );
  }

  /** Adds objects that `start` creates when the nodes are Ready. */
  prepareObjects(objects: () => object[]): void {
    this.#preparations.push(objects);
  }

  /** Starts the control plane and both agents, and creates what was prepared. */
  async start(clusterCidr: string, flags: readonly string[] = []): Promise<void> {
    const plane = await ControlPlaneProcess.start(['--cluster-cidr', clusterCidr]);
    this.#plane = plane;
    for (const on of RUNTIMES) {
      const agent = await AgentProcess.prepare(on, [
        ...['--kubeconfig', plane.kubeconfig, '--client-ca-file', `${plane.directory}/pki/ca.crt`],
        ...['--serve-cluster-dns=false', '--service-proxy=none', ...flags],
      ]);
      this.#agents.set(on, agent);
      agent.launch();
    }
    await until('two Ready nodes', () => {
      for (const agent of this.#agents.values()) agent.assertAlive();
      const path = '{.items[*].status.conditions[?(@.type=="Ready")].status}';
      return plane.kubectl(['get', 'nodes', '-o', `jsonpath=${path}`]).stdout === 'True True';
    });
    await until('the service account', () => plane.kubectl(['get', 'serviceaccount', 'default']).code === 0);
    this.apply(...this.#preparations.flatMap((make) => make()));
  }

  async remove(): Promise<void> {
    try {
      await Promise.all([...this.#agents.values()].map((agent) => agent.remove()));
    } finally {
      await this.#plane?.remove();
    }
  }

  nodeName(on: RuntimeName): string {
    return this.#agents.get(on)?.nodeName ?? '';
  }

  /** Returns the agent on the runtime. Throws before `start` has prepared the agents. */
  agent(on: RuntimeName): AgentProcess {
    const agent = this.#agents.get(on);
    if (agent === undefined) throw new Error(`there is no agent on ${on} yet`);
    return agent;
  }

  /** Runs kubectl. Throws if it fails. */
  run(args: readonly string[], input?: object): string {
    const done = this.try(args, input);
    assert.equal(done.code, 0, `kubectl ${args.join(' ')}: ${done.stderr}${done.stdout}`);
    return done.stdout;
  }

  /** Runs kubectl and returns its outcome, also if it fails. `input` is sent as JSON to its standard input. */
  try(args: readonly string[], input?: object): KubectlResult {
    if (this.#plane === undefined) throw new Error('the control plane does not run yet');
    return this.#plane.kubectl(args, input === undefined ? {} : { input: JSON.stringify(input) });
  }

  apply(...items: object[]): void {
    this.run(['apply', '-f', '-'], { apiVersion: 'v1', kind: 'List', items });
  }

  /** Returns a field of a pod. */
  field(name: string, path: string): string {
    return this.run(['get', 'pod', name, '-o', `jsonpath={${path}}`]);
  }

  /** Runs a shell command in a container and returns its output without surrounding white space. */
  shell(name: string, command: string, container = 'main'): string {
    return this.run(['exec', name, '-c', container, '--', 'sh', '-c', command]).trim();
  }

  /** Returns the events as lines of `reason message`. */
  events(name: string): string {
    return this.run([
      ...['get', 'events', '--field-selector', `involvedObject.name=${name}`],
      ...['-o', 'jsonpath={range .items[*]}{.reason} {.message}{"\\n"}{end}'],
    ]);
  }

  /** Calls `check` for the pod of each runtime once it is ready. */
  async each(name: string, check: (pod: string, on: RuntimeName) => Promise<void> | void): Promise<void> {
    for (const on of RUNTIMES) {
      this.run(['wait', '--for=condition=Ready', `pod/${name}-${on}`, '--timeout=100s']);
      await check(`${name}-${on}`, on);
    }
  }

  #podOf(on: RuntimeName, name: string, { spec, container, containers, metadata }: PodOptions): object {
    const main = { name: 'main', image: DEMO_IMAGE, command: ['sleep', '100000'], ...container };
    const bound = { nodeName: this.nodeName(on), terminationGracePeriodSeconds: 0 };
    return {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: `${name}-${on}`, ...metadata },
      spec: { ...bound, containers: containers ?? [main], ...spec },
    };
  }
}
