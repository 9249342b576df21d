/**
 * Creates and deletes what users of the tested cluster run: pods that are scheduled to its nodes, a deployment that is scaled,
 * and services with addresses. Each request goes to a server that is drawn for it.
 */
import { systemClock } from '../../../api/machinery/clock.ts';
import { until } from '../../until.ts';
import type { Answer, Api } from '../api.ts';
import { count, type Recording } from '../clients.ts';
import type { Random } from '../random.ts';
import type { SoakNode } from './nodes.ts';
import { repeatedStarts, sharedAddresses, type Tenure, WORKLOAD_IMAGE } from './workload-history.ts';

const PODS = '/api/v1/namespaces/default/pods';
const SERVICES = '/api/v1/namespaces/default/services';
const DEPLOYMENTS = '/apis/apps/v1/namespaces/default/deployments';
/** How many pods and services there are at a time, apart from the pods of the deployment. */
const AT_A_TIME = 8;
const MAX_REPLICAS = 6;
const END_MS = 120_000;

const isDone = ({ status }: Answer): boolean => status === 200 || status === 201;

/** The pods, the deployment and the services of the test. */
export class Workload {
  readonly #api: Api;
  readonly #nodes: readonly SoakNode[];
  readonly #random: Random;
  readonly #recording: Recording;
  readonly #tenures: Tenure[] = [];
  readonly #pods: string[] = [];
  readonly #services: Tenure[] = [];
  #names = 0;

  constructor(api: Api, nodes: readonly SoakNode[], random: Random, recording: Recording) {
    this.#api = api;
    this.#nodes = nodes;
    this.#random = random;
    this.#recording = recording;
  }

  /** Resolves when each node is ready, and a first pod runs. */
  async begin(): Promise<void> {
    for (const { name } of this.#nodes)
      await until(`the node ${name}`, async () => {
        const { body } = await this.#api.call('GET', `/api/v1/nodes/${name}`);
        return conditionsOf(body).some(({ type, status }) => type === 'Ready' && status === 'True');
      });
    await until('the deployment', async () => {
      const { status } = await this.#api.call('POST', DEPLOYMENTS, deployment(1));
      return status === 201 || status === 409;
    });
    await this.#untilRunning(1);
  }

  /** Creates, deletes and scales objects at random until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const choice = this.#random.next();
      if (choice < 0.4) await this.#turnPod();
      else if (choice < 0.8) await this.#turnService();
      else if (choice < 0.85) await this.#scale(this.#random.between(0, MAX_REPLICAS));
      await systemClock.sleep(this.#random.between(20, 300));
    }
  }

  /** Deletes what is left, and runs the deployment with one more pod than nodes. Resolves when exactly these pods run. */
  async end(): Promise<void> {
    const replicas = this.#nodes.length + 1;
    await until('the last scale', () => this.#scale(replicas));
    await until('the deletion of the pods', async () =>
      isDone(await this.#api.call('DELETE', `${PODS}?labelSelector=app%3Dalone`)),
    );
    await this.#untilRunning(replicas);
    const { body } = await this.#api.call('GET', `${SERVICES}?labelSelector=app%3Dsoak`);
    const nowMs = performance.now();
    for (const item of body.items ?? [])
      if (!this.#services.some(({ service }) => service === item.metadata?.name))
        this.#tenures.push({
          service: item.metadata?.name ?? '',
          addresses: addressesOf(item),
          fromMs: nowMs,
          untilMs: Infinity,
        });
    this.#recording.counts.set('pods started', this.#nodes.flatMap(({ starts }) => starts).length);
    this.#recording.counts.set('services with addresses', this.#tenures.length);
  }

  /** Returns the violations. */
  violations(): readonly string[] {
    return [...repeatedStarts(this.#nodes.flatMap(({ starts }) => starts)), ...sharedAddresses(this.#tenures)];
  }

  async #turnPod(): Promise<void> {
    const gone = this.#pods.length < AT_A_TIME ? undefined : this.#pods.shift();
    if (gone !== undefined) return void (await this.#api.call('DELETE', `${PODS}/${gone}?gracePeriodSeconds=1`));
    const name = this.#name('pod');
    await this.#api.call('POST', PODS, { metadata: { name, labels: { app: 'alone' } }, spec: POD });
    this.#pods.push(name);
  }

  async #turnService(): Promise<void> {
    const gone = this.#services.length < AT_A_TIME ? undefined : this.#services.shift();
    if (gone !== undefined) {
      gone.untilMs = performance.now();
      await this.#api.call('DELETE', `${SERVICES}/${gone.service}`);
      return;
    }
    const service = this.#name('service');
    const made = await this.#api.call('POST', SERVICES, {
      metadata: { name: service, labels: { app: 'soak' } },
      spec: { type: 'NodePort', ports: [{ port: 80 }] },
    });
    if (!isDone(made)) return;
    const tenure = { service, addresses: addressesOf(made.body), fromMs: performance.now(), untilMs: Infinity };
    this.#services.push(tenure);
    this.#tenures.push(tenure);
  }

  async #scale(replicas: number): Promise<boolean> {
    const scale = {
      kind: 'Scale',
      apiVersion: 'autoscaling/v1',
      metadata: { name: 'scaled', namespace: 'default' },
      spec: { replicas },
    };
    const done = isDone(await this.#api.call('PUT', `${DEPLOYMENTS}/scaled/scale`, scale));
    if (done) count(this.#recording, 'scales');
    return done;
  }

  #name(what: string): string {
    return `${what}-${++this.#names}`;
  }

  async #untilRunning(wanted: number): Promise<void> {
    const running = (): number => this.#nodes.flatMap((node) => node.running).length;
    await until(`${wanted} running pods`, () => running() === wanted, END_MS).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${running()} run`);
    });
  }
}

const POD = {
  automountServiceAccountToken: false,
  terminationGracePeriodSeconds: 1,
  restartPolicy: 'Never',
  containers: [{ name: 'c', image: WORKLOAD_IMAGE, imagePullPolicy: 'Never', command: ['sleep', '100000'] }],
};

const deployment = (replicas: number): object => ({
  metadata: { name: 'scaled' },
  spec: {
    replicas,
    selector: { matchLabels: { app: 'scaled' } },
    template: { metadata: { labels: { app: 'scaled' } }, spec: { ...POD, restartPolicy: 'Always' } },
  },
});

const conditionsOf = ({ status }: Answer['body']): readonly { readonly type: string; readonly status: string }[] =>
  status?.conditions ?? [];

function addressesOf({ spec }: Answer['body']): readonly string[] {
  return [spec?.clusterIP ?? '', ...(spec?.ports ?? []).map(({ nodePort }) => `port ${nodePort}`)];
}
