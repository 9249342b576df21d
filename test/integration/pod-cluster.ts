/**
 * Runs a control plane and an agent on a real container runtime, each as a separate process, and kubectl, for tests of the
 * lifecycle of pods. The test binds pods to the node itself, so that the agent decides about them without a scheduler.
 */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { AgentProcess, type RuntimeName } from './agent-process.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import type { KubectlResult } from './kubectl.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

export interface PodOptions {
  readonly metadata?: object;
  readonly spec?: object;
  /** Merged into the container `main`, which sleeps. */
  readonly container?: object;
  readonly containers?: readonly object[];
}

export interface PodClusterOptions {
  readonly on: RuntimeName;
  readonly cidr: string;
  readonly flags?: readonly string[];
  /** Lines of a KubeletConfiguration. */
  readonly configuration?: string;
  /** Called before the agent starts. */
  readonly prepare?: (agent: AgentProcess) => void;
}

interface EventSeen {
  readonly reason: string;
  readonly message: string;
}

/** A control plane with one node. */
export class PodCluster {
  readonly plane: ControlPlaneProcess;
  readonly agent: AgentProcess;
  /** A directory of this host that pods write to. */
  readonly shared: string;
  readonly #configuration: string;

  private constructor(plane: ControlPlaneProcess, agent: AgentProcess, configuration: string) {
    this.plane = plane;
    this.agent = agent;
    this.#configuration = configuration;
    this.shared = join(agent.directory, 'shared');
    mkdirSync(this.shared, { mode: 0o777 });
  }

  /** Resolves when the node is Ready and pods can be created. */
  static async start(options: PodClusterOptions): Promise<PodCluster> {
    const { on, cidr, flags = [], configuration = '', prepare } = options;
    const plane = await ControlPlaneProcess.start(['--cluster-cidr', cidr]);
    const file = join(temporaryFolder(), 'config.yaml');
    writeFileSync(file, `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n${configuration}`);
    const agent = await AgentProcess.prepare(on, [
      ...['--kubeconfig', plane.kubeconfig, '--client-ca-file', join(plane.directory, 'pki', 'ca.crt')],
      ...['--config', file, ...flags],
    ]);
    const cluster = new PodCluster(plane, agent, file);
    try {
      prepare?.(agent);
      agent.launch();
      await cluster.nodeReady();
      await until('the service account', () =>
        plane.kubectl(['get', 'serviceaccount', 'default']).code === 0 ? true : undefined,
      );
    } catch (error) {
      await cluster.remove();
      throw error;
    }
    return cluster;
  }

  async remove(): Promise<void> {
    await this.agent.remove();
    await this.plane.remove();
    rmSync(dirname(this.#configuration), { recursive: true, force: true });
  }

  /** Resolves when the node is Ready. */
  async nodeReady(): Promise<void> {
    await until('a Ready node', () => {
      this.agent.assertAlive();
      const path = '{.items[*].status.conditions[?(@.type=="Ready")].status}';
      return this.plane.kubectl(['get', 'nodes', '-o', `jsonpath=${path}`]).stdout === 'True' ? true : undefined;
    });
  }

  /** Runs kubectl. Throws if it fails. */
  run(args: readonly string[], input?: object): string {
    const done = this.try(args, input);
    assert.equal(done.code, 0, `kubectl ${args.join(' ')}: ${done.stderr}${done.stdout}`);
    return done.stdout;
  }

  /** Runs kubectl and returns its outcome, also if it fails. `input` is sent as JSON to its standard input. */
  try(args: readonly string[], input?: object): KubectlResult {
    return this.plane.kubectl(args, input === undefined ? {} : { input: JSON.stringify(input) });
  }

  spawn(args: readonly string[], path?: string): ChildProcess {
    return this.plane.spawn(args, path);
  }

  /** Returns a value of a pod by its JSONPath. */
  field(name: string, path: string): string {
    return this.run(['get', 'pod', name, '-o', `jsonpath={${path}}`]);
  }

  /** Returns a value below the status of the container. */
  container(pod: string, path: string, name = 'main'): string {
    return this.field(pod, `.status.containerStatuses[?(@.name=="${name}")]${path}`);
  }

  /** Runs a shell command in a container and returns its output. */
  shell(pod: string, command: string, container = 'main'): string {
    return this.run(['exec', pod, '-c', container, '--', 'sh', '-c', command]);
  }

  /** Returns a pod that is bound to the node and sleeps, changed by the options. */
  manifest(name: string, { metadata, spec, container, containers }: PodOptions = {}): object {
    const main = { name: 'main', image: DEMO_IMAGE, command: ['sleep', '100000'], ...container };
    return {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, ...metadata },
      spec: {
        nodeName: this.agent.nodeName,
        terminationGracePeriodSeconds: 1,
        containers: containers ?? [main],
        ...spec,
      },
    };
  }

  create(name: string, options: PodOptions = {}): void {
    this.run(['apply', '-f', '-'], this.manifest(name, options));
  }

  /** Creates many pods with one call of kubectl. */
  createAll(manifests: readonly object[]): void {
    this.run(['apply', '-f', '-'], { apiVersion: 'v1', kind: 'List', items: manifests });
  }

  /** Waits until the pod is Ready. */
  ready(name: string): void {
    this.run(['wait', '--for=condition=Ready', `pod/${name}`, '--timeout=90s']);
  }

  /** Waits until the condition holds. Fails at once if the agent exits. */
  async eventually(what: string, check: () => boolean): Promise<void> {
    await until(what, () => {
      this.agent.assertAlive();
      return check() ? true : undefined;
    });
  }

  events(pod: string): readonly EventSeen[] {
    const text = this.run(['get', 'events', '--field-selector', `involvedObject.name=${pod}`, '-o', 'json']);
    return (JSON.parse(text) as { readonly items: readonly EventSeen[] }).items;
  }

  /** Whether the pod has an event with the reason and such a message. */
  hasEvent(pod: string, reason: string, message: RegExp): boolean {
    return this.events(pod).some((event) => event.reason === reason && message.test(event.message));
  }

  /** Returns the content of a file that pods wrote, or ''. */
  written(name: string): string {
    try {
      return readFileSync(join(this.shared, name), 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      return '';
    }
  }

  /** The mounts and volumes with which a pod can write to the directory of this host. */
  get sharedMount(): { readonly mount: object; readonly volumes: object } {
    return {
      mount: { volumeMounts: [{ name: 'shared', mountPath: '/shared' }] },
      volumes: { volumes: [{ name: 'shared', hostPath: { path: this.shared } }] },
    };
  }
}
