/**
 * Groups and versions that other servers serve: which APIServices name one, whether it answers, what it serves, and where a
 * request for it goes. The server behind recognises this one by the front-proxy certificate and the user by headers.
 *
 * Whether a backend answers is asked again on every change and every half a minute; what it answered last is what
 * discovery shows.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/machinery/client.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { formatTime } from '../../api/machinery/clock.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { apiServices } from '../../api/machinery/resources.ts';
import { isConflict, isNotFound, isStatusError, newStatusError } from '../../api/meta/status-error.ts';
import type { ResourceInfo, SubresourceInfo } from '../../api/schema/schema.ts';
import type { Source } from '../admission/sources.ts';
import type { UserInfo } from '../authentication/authentication.ts';
import {
  type Backend,
  BackendError,
  backendOf,
  type BackendSources,
  type ServiceReference,
} from './api-service-target.ts';

export interface AggregatedTls {
  readonly cert: string;
  readonly key: string;
  readonly ca?: string;
  readonly servername: string;
  readonly rejectUnauthorized: boolean;
}

export interface AggregatedTarget extends Backend {
  readonly tls: AggregatedTls;
}

export interface AggregatorOptions extends BackendSources {
  readonly definitions: Source;
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  readonly random: () => number;
  /** PEM of the certificate that backends know this server by. */
  readonly frontProxy: () => { readonly cert: string; readonly key: string };
  /** GET with JSON in the answer; rejects where the backend does not answer with 200. */
  readonly fetchJson: (
    target: AggregatedTarget,
    path: string,
    headers: readonly (readonly [string, string])[],
  ) => Promise<unknown>;
}

interface Condition {
  type: string;
  status: string;
  lastTransitionTime: string;
  reason: string;
  message: string;
}

export interface ApiService extends KubeObject {
  spec?: {
    readonly group?: string;
    readonly version?: string;
    readonly service?: ServiceReference;
    readonly caBundle?: string;
    readonly insecureSkipTLSVerify?: boolean;
  };
  status?: { conditions?: Condition[] };
}

const CHECK_MS = 30_000;

export class Aggregator {
  readonly #options: AggregatorOptions;
  readonly #remote = new Map<string, ApiService>();
  readonly #rows = new Map<string, readonly ResourceInfo[]>();
  readonly #listeners: (() => void)[] = [];
  readonly #checking = new Set<string>();

  constructor(options: AggregatorOptions) {
    this.#options = options;
    options.definitions.subscribe(({ current, previous }) => this.#changed(current, previous));
    this.#again();
  }

  /** The APIService of a group and version that another server serves. */
  find(group: string, version: string): ApiService | undefined {
    return this.#remote.get(`${version}.${group}`);
  }

  /** Rows for discovery, of backends that answer. */
  resources(): readonly ResourceInfo[] {
    return [...this.#rows.values()].flat();
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Throws `BackendError`. */
  target({ spec = {} }: ApiService): AggregatedTarget {
    const { service = {}, caBundle = '', insecureSkipTLSVerify = false } = spec;
    const backend = backendOf(service, this.#options, this.#options.random);
    const ca = caBundle === '' ? {} : { ca: Buffer.from(caBundle, 'base64').toString('utf8') };
    const tls = { ...this.#options.frontProxy(), ...ca, servername: backend.serverName };
    return { ...backend, tls: { ...tls, rejectUnauthorized: !insecureSkipTLSVerify } };
  }

  /**
   * What another server answers to a GET, asked for as this user. Rejects with a `StatusError`: 404 where no server serves the
   * path's group and version, 503 where it cannot be reached, and the code of any answer that is not 200.
   */
  async get(path: string, user: UserInfo): Promise<unknown> {
    const [root, group = '', version = ''] = path.split('/').filter((part) => part !== '');
    const service = root === 'apis' ? this.find(group, version) : undefined;
    if (service === undefined)
      throw newStatusError(404, 'NotFound', 'the server could not find the requested resource');
    try {
      return await this.#options.fetchJson(this.target(service), path, userHeaders(user));
    } catch (error) {
      if (isStatusError(error)) throw error;
      const why = error instanceof Error ? error.message : String(error);
      throw newStatusError(503, 'ServiceUnavailable', `${service.metadata.name ?? ''} is unavailable: ${why}`, {
        cause: error,
      });
    }
  }

  #changed(current: KubeObject | undefined, previous: KubeObject | undefined): void {
    const name = (current ?? previous)?.metadata.name ?? '';
    const service = current as ApiService | undefined;
    if (service?.spec?.service === undefined) {
      this.#remote.delete(name);
      if (this.#rows.delete(name)) this.#announce();
      return;
    }
    this.#remote.set(name, service);
    this.#check(name);
  }

  #again(): void {
    const { clock, signal } = this.#options;
    clock.after(CHECK_MS, () => {
      if (signal.aborted) return;
      for (const name of this.#remote.keys()) this.#check(name);
      this.#again();
    });
  }

  #check(name: string): void {
    if (this.#checking.has(name)) return;
    this.#checking.add(name);
    this.#checked(name)
      .catch((error: unknown) => {
        if (this.#options.signal.aborted || isConflict(error) || isNotFound(error)) return;
        this.#options.logger.warn({ error, apiService: name }, 'The status of an API service could not be written');
      })
      .finally(() => this.#checking.delete(name));
  }

  async #checked(name: string): Promise<void> {
    const service = this.#remote.get(name);
    if (service === undefined) return;
    let state = { status: 'True', reason: 'Passed', message: 'all checks passed' };
    let rows: readonly ResourceInfo[] = [];
    try {
      rows = await this.#discover(service);
    } catch (error) {
      const reason = error instanceof BackendError ? error.reason : 'FailedDiscoveryCheck';
      state = { status: 'False', reason, message: error instanceof Error ? error.message : String(error) };
    }
    if (this.#options.signal.aborted || !this.#remote.has(name)) return;
    if (JSON.stringify(this.#rows.get(name) ?? []) !== JSON.stringify(rows)) {
      this.#rows.set(name, rows);
      this.#announce();
    }
    await this.#write(name, state);
  }

  async #discover(service: ApiService): Promise<readonly ResourceInfo[]> {
    const { group = '', version = '' } = service.spec ?? {};
    const path = `/apis/${group}/${version}`;
    const target = this.target(service);
    try {
      const list = await this.#options.fetchJson(target, path, userHeaders(DISCOVERER));
      return rowsOf(group, version, list);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new Error(`failing or missing response from https://${target.host}:${target.port}${path}: ${why}`, {
        cause: error,
      });
    }
  }

  async #write(
    name: string,
    state: { readonly status: string; readonly reason: string; readonly message: string },
  ): Promise<void> {
    const current = this.#remote.get(name);
    const known = current?.status?.conditions?.find(({ type }) => type === 'Available');
    if (current === undefined) return;
    if (known?.status === state.status && known.reason === state.reason && known.message === state.message) return;
    const since = known?.status === state.status ? known.lastTransitionTime : formatTime(this.#options.clock.now());
    const others = (current.status?.conditions ?? []).filter(({ type }) => type !== 'Available');
    const condition: Condition = { type: 'Available', ...state, lastTransitionTime: since };
    const next = { ...structuredClone(current), status: { conditions: [...others, condition] } };
    await this.#options.client.update(apiServices, next, { subresource: 'status' });
  }

  #announce(): void {
    for (const listener of this.#listeners) listener();
  }
}

const DISCOVERER: UserInfo = { name: 'system:kube-aggregator', groups: ['system:masters'] };

/** How the backend is told who asks. */
export function userHeaders(user: UserInfo): [string, string][] {
  const headers: [string, string][] = [['x-remote-user', user.name]];
  if (user.uid !== undefined && user.uid !== '') headers.push(['x-remote-uid', user.uid]);
  for (const group of user.groups) headers.push(['x-remote-group', group]);
  for (const [key, values] of Object.entries(user.extra ?? {})) {
    for (const value of values) headers.push([`x-remote-extra-${encodeURIComponent(key).toLowerCase()}`, value]);
  }
  return headers;
}

interface ListedResource {
  readonly name?: string;
  readonly singularName?: string;
  readonly namespaced?: boolean;
  readonly group?: string;
  readonly version?: string;
  readonly kind?: string;
  readonly verbs?: readonly string[];
  readonly shortNames?: readonly string[];
  readonly categories?: readonly string[];
}

/** An `APIResourceList` as rows; throws for what is none. */
export function rowsOf(group: string, version: string, list: unknown): ResourceInfo[] {
  const { resources } = (list ?? {}) as { readonly resources?: readonly ListedResource[] };
  if (!Array.isArray(resources)) throw new Error('the answer is no list of resources');
  const all: readonly ListedResource[] = resources;
  return all
    .filter(({ name = '' }) => name !== '' && !name.includes('/'))
    .map(
      ({
        name = '',
        singularName = '',
        kind = '',
        namespaced = false,
        verbs = [],
        shortNames = [],
        categories = [],
      }) => ({
        group,
        version,
        resource: name,
        kind,
        singular: singularName,
        shortNames,
        categories,
        namespaced,
        verbs,
        subresources: all
          .filter((one) => one.name?.startsWith(`${name}/`) === true)
          .map((one): SubresourceInfo => ({
            name: one.name?.slice(name.length + 1) ?? '',
            group: one.group ?? group,
            version: one.version ?? version,
            kind: one.kind ?? '',
            verbs: one.verbs ?? [],
          })),
        custom: { listKind: `${kind}List`, deprecation: '' },
      }),
    );
}
