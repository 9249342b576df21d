/**
 * Creates, changes and deletes pods at random from a seed, and knows the expected result: pods of the API server and static
 * pods, crashes and resizes.
 */
import { existsSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../../../api/machinery/clock.ts';
import type { Api, ApiObject } from '../api.ts';
import type { Random } from '../random.ts';
import type { SoakNode } from './node.ts';
import { CPU, podOf, type PodKind, resources } from './pods.ts';

export const PODS = '/api/v1/namespaces/default/pods';
const MAX_PODS = 5;
const MAX_TRIES = 20;

export interface WantedPod {
  readonly name: string;
  readonly kind: PodKind;
  /** The uid of a pod of the API server. For static pods, the mirror pod shows it. */
  readonly uid: string | undefined;
  readonly cpu: string;
  /** The value of a label. A static pod with another value is another pod. */
  readonly version: string;
}

/** What the program does to a pod. */
export type Change = 'create' | 'delete' | 'crash' | 'resize' | 'replace';

/** The random operations on pods, with the result that they must have. */
export class PodProgram {
  readonly pods = new Map<string, WantedPod>();
  readonly counts = new Map<string, number>();
  readonly #api: Api;
  readonly #node: SoakNode;
  readonly #random: Random;
  #number = 0;

  constructor(api: Api, node: SoakNode, random: Random) {
    this.#api = api;
    this.#node = node;
    this.#random = random;
  }

  /** Creates one pod, and changes or deletes another one. */
  async step(): Promise<void> {
    if (this.pods.size >= MAX_PODS || (this.pods.size > 1 && this.#random.next() < 0.4)) await this.#delete();
    await this.#create();
    const change = this.#random.pick<Change>(['crash', 'resize', 'replace', 'crash', 'resize']);
    if (change === 'crash') await this.#crash();
    else if (change === 'resize') await this.#resize();
    else await this.#replace();
  }

  /** Returns the name of the pod in the API: that of the mirror pod for a static pod. */
  mirrorName(pod: WantedPod): string {
    return pod.kind === 'static' ? `${pod.name}-${this.#node.name}` : pod.name;
  }

  #count(change: Change): void {
    this.counts.set(change, (this.counts.get(change) ?? 0) + 1);
  }

  async #create(): Promise<void> {
    const kind = this.#random.pick<PodKind>(['full', 'full', 'job', 'static']);
    const name = `soak-${kind}-${this.#number}`;
    this.#number += 1;
    const version = 'v0';
    const object = this.#object({ name, kind, version });
    if (kind === 'static') this.#write(name, object);
    const uid = kind === 'static' ? undefined : await this.#post(object);
    this.pods.set(name, { name, kind, uid, cpu: CPU[0], version });
    this.#count('create');
  }

  async #post(object: object): Promise<string> {
    const { status, body } = await this.#api.call('POST', PODS, object);
    if (status !== 201) throw new Error(`a pod is refused: ${status} ${body.message ?? ''}`);
    return body.metadata?.uid ?? '';
  }

  async #delete(): Promise<void> {
    const pod = this.#random.pick([...this.pods.values()]);
    this.pods.delete(pod.name);
    this.#count('delete');
    if (pod.kind === 'static') return rmSync(this.#manifest(pod.name));
    const { status } = await this.#api.call('DELETE', `${PODS}/${pod.name}`);
    if (status !== 200) throw new Error(`the deletion of ${pod.name} is refused: ${status}`);
  }

  #crash(): void {
    const pods = [...this.pods.values()].filter(({ kind, uid }) => kind === 'full' && uid !== undefined);
    if (pods.length === 0) return;
    const record = join(this.#node.records, `${this.#random.pick(pods).uid}.${this.#random.pick(['main', 'side'])}`);
    if (!existsSync(record)) return;
    writeFileSync(`${record}.die`, '');
    this.#count('crash');
  }

  async #resize(): Promise<void> {
    const pods = [...this.pods.values()].filter(({ kind }) => kind === 'full');
    if (pods.length === 0) return;
    const pod = this.#random.pick(pods);
    const cpu = pod.cpu === CPU[0] ? CPU[1] : CPU[0];
    const path = `${PODS}/${pod.name}`;
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const { body } = await this.#api.call('GET', path);
      const { spec, ...rest } = body as ApiObject & { readonly spec: { readonly containers: readonly object[] } };
      const containers = spec.containers.map((one) => ({ ...one, resources: resources(cpu) }));
      const { status } = await this.#api.call('PUT', `${path}/resize`, { ...rest, spec: { ...spec, containers } });
      if (status === 200) {
        this.pods.set(pod.name, { ...pod, cpu });
        return this.#count('resize');
      }
      // The agent has written the pod's status in the meantime.
      if (status !== 409) throw new Error(`the resize of ${pod.name} is refused: ${status}`);
      await systemClock.sleep(20);
    }
    throw new Error(`the resize of ${pod.name} conflicts again and again`);
  }

  /** Replaces the manifest of a static pod. A changed manifest is another pod with the same name. */
  #replace(): void {
    const pods = [...this.pods.values()].filter(({ kind }) => kind === 'static');
    if (pods.length === 0) return;
    const pod = this.#random.pick(pods);
    this.#number += 1;
    const changed = { ...pod, version: `v${this.#number}` };
    this.pods.set(pod.name, changed);
    this.#write(pod.name, this.#object(changed));
    this.#count('replace');
  }

  #object({ name, kind, version }: Pick<WantedPod, 'name' | 'kind' | 'version'>): object {
    return podOf({ name, kind, version, records: this.#node.records, nodeName: this.#node.name });
  }

  #manifest(name: string): string {
    return join(this.#node.manifests, `${name}.json`);
  }

  #write(name: string, object: object): void {
    const draft = join(this.#node.manifests, `.${name}`);
    writeFileSync(draft, JSON.stringify(object));
    renameSync(draft, this.#manifest(name));
  }
}
