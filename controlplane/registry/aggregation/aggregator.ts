/**
 * Tracks the groups and versions that other servers serve: their APIServices, whether the servers are available, what they
 * serve, and where a request for them is forwarded. The other server authenticates this one by the front-proxy certificate and
 * receives the user in headers.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { Client } from '../../../api/client/client.ts';
import { type Clock, formatTime } from '../../../api/machinery/clock.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { apiServices } from '../../../api/client/resources.ts';
import { isConflict, isNotFound, isStatusError, newStatusError } from '../../../api/meta/status-error.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import type { Lister } from '../../model/listers.ts';
import type { UserInfo } from '../../model/user-info.ts';
import { encodedHeaderValue } from '../../security/authentication/header-values.ts';
import type { AggregationMetrics } from './aggregation-metrics.ts';
import {
  type Backend,
  BackendError,
  backendOf,
  type BackendListers,
  type ServiceReference,
} from '../../model/service-backend.ts';
import { rowsOf } from './backend-discovery.ts';
import { type BackendOpenApi, fetchOpenApi, type OpenApiPart } from './backend-openapi.ts';
import { MASTERS_GROUP } from '../../../api/meta/system-users.ts';
import { SERVICE_NAME_LABEL } from '../../../api/meta/well-known-labels.ts';

interface AggregatedTls {
  readonly cert: string;
  readonly key: string;
  readonly ca?: string;
  readonly servername: string;
  readonly rejectUnauthorized: boolean;
}

/** Where a request for an aggregated API is forwarded, and the TLS settings for it. */
export interface AggregatedTarget extends Backend {
  readonly tls: AggregatedTls;
}

interface AggregatorOptions extends BackendListers {
  readonly definitions: Lister;
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  readonly random: () => number;
  readonly metrics: AggregationMetrics;
  /** The PEM certificate by which aggregated servers authenticate this one. */
  readonly frontProxy: () => { readonly cert: string; readonly key: string };
  /** Sends a GET and returns the JSON of the response; rejects if the code is not 200 or the response is too large. */
  readonly fetchJson: (
    target: AggregatedTarget,
    path: string,
    headers: readonly (readonly [string, string])[],
    maxBytes: number,
  ) => Promise<unknown>;
  /** Throws if the OpenAPI document of this server could not be encoded with the part. */
  readonly checkOpenApi: (part: OpenApiPart) => void;
}

interface Condition {
  type: string;
  status: string;
  lastTransitionTime: string;
  reason: string;
  message: string;
}

/** An APIService as it is stored; one without `spec.service` is served by this server. */
interface ApiService extends KubeObject {
  spec?: {
    readonly group?: string;
    readonly version?: string;
    readonly service?: ServiceReference;
    readonly caBundle?: string;
    readonly insecureSkipTLSVerify?: boolean;
    readonly groupPriorityMinimum?: number;
    readonly versionPriority?: number;
  };
  status?: { conditions?: Condition[] };
}

/** A group and version as in discovery. */
export interface AggregatedVersion {
  readonly group: string;
  readonly version: string;
  readonly rows: readonly ResourceInfo[];
  /** Whether no check is complete, or the last one or its discovery failed. The rows are those of an earlier one, or none. */
  readonly stale: boolean;
  readonly groupPriority: number;
  readonly versionPriority: number;
}

/** What the last check of an APIService found. */
interface CheckResult {
  readonly rows: readonly ResourceInfo[];
  readonly stale: boolean;
  readonly openApi: BackendOpenApi | undefined;
}

/**
 * The group that this server always serves itself. If an APIService sent it to another server, an administrator could not
 * change that APIService back.
 */
const OWN_GROUP = 'apiregistration.k8s.io';
const CHECK_MS = 30_000;
const MEGABYTE = 1024 * 1024;
const MAX_DISCOVERY_BYTES = MEGABYTE;
/** The maximum size of a response, which is parsed in one turn of the event loop. */
const MAX_ANSWER_BYTES = 8 * MEGABYTE;
const NOT_CHECKED: CheckResult = { rows: [], stale: true, openApi: undefined };

/** The APIServices whose requests other servers answer, with the results of their last checks. */
export class Aggregator {
  readonly #options: AggregatorOptions;
  readonly #remote = new Map<string, ApiService>();
  readonly #lastChecks = new Map<string, CheckResult>();
  readonly #listeners: (() => void)[] = [];
  readonly #checking = new Set<string>();
  /** The APIServices that are checked again after their running check. */
  readonly #checkAgain = new Set<string>();

  constructor(options: AggregatorOptions) {
    this.#options = options;
    options.definitions.subscribe(({ current, previous }) => this.#changed(current, previous));
    options.services.subscribe(({ current, previous }) => {
      const { namespace = '', name = '' } = (current ?? previous)?.metadata ?? {};
      this.#checkBehind(namespace, name);
    });
    options.endpointSlices.subscribe(({ current, previous }) => {
      const { namespace = '', labels } = (current ?? previous)?.metadata ?? {};
      this.#checkBehind(namespace, labels?.[SERVICE_NAME_LABEL] ?? '');
    });
    this.#checkPeriodically();
  }

  /** Returns the APIService of a group and version, or `undefined` if no other server serves it. */
  find(group: string, version: string): ApiService | undefined {
    return this.#remote.get(`${version}.${group}`);
  }

  /** Whether the last check of the service succeeded. */
  isAvailable({ status }: ApiService): boolean {
    return status?.conditions?.some((one) => one.type === 'Available' && one.status === 'True') === true;
  }

  /** Returns the group versions of other servers, with the resources that discovery found last. */
  versions(): readonly AggregatedVersion[] {
    return [...this.#remote].map(([name, { spec = {} }]) => {
      const { rows, stale } = this.#lastChecks.get(name) ?? NOT_CHECKED;
      const { group = '', version = '', groupPriorityMinimum = 0, versionPriority = 0 } = spec;
      return { group, version, rows, stale, groupPriority: groupPriorityMinimum, versionPriority };
    });
  }

  /** Returns the OpenAPI documents of the aggregated servers. */
  openApi(): readonly BackendOpenApi[] {
    return [...this.#lastChecks.values()].flatMap(({ openApi }) => (openApi === undefined ? [] : [openApi]));
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Returns the server to which requests of the API service go. Throws `BackendError` if its service has no address. */
  target({ spec = {} }: ApiService): AggregatedTarget {
    const { service = {}, caBundle = '', insecureSkipTLSVerify = false } = spec;
    const backend = backendOf(service, this.#options, this.#options.random);
    const ca = caBundle === '' ? {} : { ca: Buffer.from(caBundle, 'base64').toString('utf8') };
    const tls = { ...this.#options.frontProxy(), ...ca, servername: backend.serverName };
    return { ...backend, tls: { ...tls, rejectUnauthorized: !insecureSkipTLSVerify } };
  }

  /**
   * Sends a GET as this user to the server of the path, and returns its response. Rejects with a `StatusError`, which is a 404
   * if no other server serves the group and version of the path.
   */
  async get(path: string, user: UserInfo): Promise<unknown> {
    const [root, group = '', version = ''] = path.split('/').filter((part) => part !== '');
    const service = root === 'apis' ? this.find(group, version) : undefined;
    if (service === undefined)
      throw newStatusError(404, 'NotFound', 'the server could not find the requested resource');
    try {
      return await this.#options.fetchJson(this.target(service), path, userHeaders(user), MAX_ANSWER_BYTES);
    } catch (error) {
      if (isStatusError(error)) throw error;
      const why = errorMessage(error);
      throw newStatusError(503, 'ServiceUnavailable', `${service.metadata.name ?? ''} is unavailable: ${why}`, {
        cause: error,
      });
    }
  }

  #changed(current: KubeObject | undefined, previous: KubeObject | undefined): void {
    const name = (current ?? previous)?.metadata.name ?? '';
    const service = current as ApiService | undefined;
    if (service === undefined) this.#options.metrics.removed(name);
    if (service?.spec?.service === undefined || service.spec.group === OWN_GROUP) {
      if (service !== undefined) this.#options.metrics.observed(name, undefined);
      this.#lastChecks.delete(name);
      if (this.#remote.delete(name)) this.#notifyListeners();
      return;
    }
    const before = this.#remote.get(name);
    this.#remote.set(name, service);
    if (!jsonEqual(before?.spec, service.spec)) this.#notifyListeners();
    this.#check(name);
  }

  #checkPeriodically(): void {
    const { clock, signal } = this.#options;
    clock.after(CHECK_MS, () => {
      if (signal.aborted) return;
      for (const name of this.#remote.keys()) this.#check(name);
      this.#checkPeriodically();
    });
  }

  /** Checks the APIServices whose requests are forwarded to the service. */
  #checkBehind(namespace: string, name: string): void {
    for (const [apiService, { spec }] of this.#remote) {
      if (spec?.service?.namespace === namespace && spec.service.name === name) this.#check(apiService);
    }
  }

  #check(name: string): void {
    if (this.#checking.has(name)) {
      this.#checkAgain.add(name);
      return;
    }
    this.#checking.add(name);
    this.#checkOnce(name)
      .catch((error: unknown) => {
        if (this.#options.signal.aborted || isConflict(error) || isNotFound(error)) return;
        this.#options.logger.warn(
          { err: error, apiService: name },
          'The status of an API service could not be written',
        );
      })
      .finally(() => {
        this.#checking.delete(name);
        if (this.#checkAgain.delete(name) && !this.#options.signal.aborted) this.#check(name);
      });
  }

  async #checkOnce(name: string): Promise<void> {
    const service = this.#remote.get(name);
    if (service === undefined) return;
    let state = { status: 'True', reason: 'Passed', message: 'all checks passed' };
    try {
      await this.#probe(service);
    } catch (error) {
      const reason = error instanceof BackendError ? error.reason : 'FailedDiscoveryCheck';
      state = { status: 'False', reason, message: errorMessage(error) };
    }
    const before = this.#lastChecks.get(name) ?? NOT_CHECKED;
    const result = state.status === 'True' ? await this.#discover(service, before) : { ...before, stale: true };
    if (this.#options.signal.aborted || this.#remote.get(name)?.metadata.uid !== service.metadata.uid) return;
    this.#lastChecks.set(name, result);
    this.#options.metrics.observed(name, state.status === 'True' ? undefined : state.reason);
    if (!jsonEqual(before, result)) this.#notifyListeners();
    await this.#write(name, state);
  }

  /** Checks that the server responds, whatever its certificate is. */
  async #probe(service: ApiService): Promise<void> {
    const target = this.target(service);
    const path = pathOf(service);
    try {
      const tls = { ...target.tls, rejectUnauthorized: false };
      await this.#options.fetchJson({ ...target, tls }, path, userHeaders(DISCOVERER), MAX_DISCOVERY_BYTES);
    } catch (error) {
      const why = errorMessage(error);
      throw new Error(`failing or missing response from https://${target.host}:${target.port}${path}: ${why}`, {
        cause: error,
      });
    }
  }

  /** Reads what the server serves. What cannot be read stays as it was in the previous result. */
  async #discover(service: ApiService, before: CheckResult): Promise<CheckResult> {
    const { group = '', version = '' } = service.spec ?? {};
    const fetchPath = (path: string): Promise<unknown> => {
      const maxBytes = path === '/openapi/v2' ? MAX_ANSWER_BYTES : MAX_DISCOVERY_BYTES;
      return this.#options.fetchJson(this.target(service), path, userHeaders(DISCOVERER), maxBytes);
    };
    let rows: readonly ResourceInfo[];
    try {
      rows = rowsOf(group, version, await fetchPath(pathOf(service)));
    } catch (error) {
      this.#options.logger.debug(
        { err: error, apiService: service.metadata.name },
        'The discovery of an API service cannot be read',
      );
      return { ...before, stale: true };
    }
    try {
      const { checkOpenApi } = this.#options;
      const openApi = await fetchOpenApi(fetchPath, { group, version }, before.openApi, checkOpenApi);
      return { rows, stale: false, openApi };
    } catch (error) {
      this.#options.logger.debug(
        { err: error, apiService: service.metadata.name },
        'The OpenAPI document of an API service cannot be read',
      );
      return { rows, stale: false, openApi: before.openApi };
    }
  }

  async #write(
    name: string,
    state: { readonly status: string; readonly reason: string; readonly message: string },
  ): Promise<void> {
    const current = this.#remote.get(name);
    const former = current?.status?.conditions?.find(({ type }) => type === 'Available');
    if (current === undefined) return;
    if (former?.status === state.status && former.reason === state.reason && former.message === state.message) return;
    const since = former?.status === state.status ? former.lastTransitionTime : formatTime(this.#options.clock.now());
    const others = (current.status?.conditions ?? []).filter(({ type }) => type !== 'Available');
    const condition: Condition = { type: 'Available', ...state, lastTransitionTime: since };
    const next = { ...structuredClone(current), status: { conditions: [...others, condition] } };
    await this.#options.client.update(apiServices, next, { subresource: 'status' });
  }

  #notifyListeners(): void {
    for (const listener of this.#listeners) listener();
  }
}

const DISCOVERER: UserInfo = { name: 'system:kube-aggregator', groups: [MASTERS_GROUP] };

/** Returns the headers that pass the user to an aggregated server, as Node.js sends them. */
export function userHeaders(user: UserInfo): [string, string][] {
  const headers: [string, string][] = [['x-remote-user', user.name]];
  if (user.uid !== undefined && user.uid !== '') headers.push(['x-remote-uid', user.uid]);
  for (const group of user.groups) headers.push(['x-remote-group', group]);
  for (const [key, values] of Object.entries(user.extra ?? {})) {
    for (const value of values) headers.push([`x-remote-extra-${encodeURIComponent(key).toLowerCase()}`, value]);
  }
  return headers.map(([name, value]) => [name, encodedHeaderValue(value)]);
}

const pathOf = ({ spec = {} }: ApiService): string => `/apis/${spec.group ?? ''}/${spec.version ?? ''}`;
