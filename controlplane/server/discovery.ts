/**
 * Serves discovery: `/api`, `/apis` and the paths below list the served resources, and aggregated discovery lists those of many
 * groups in one document.
 *
 * Documents are built from the rows of the catalog on the first use after a change, in the requested encoding, and cached.
 */
import { trimEnd } from '../../api/component/trim.ts';
import type { ProtobufCodec } from '../../api/codec/protobuf.ts';
import { encodeYaml } from '../../api/codec/yaml.ts';
import { apiVersionOf } from '../../api/meta/object.ts';
import { isStatusError, newNotAcceptable } from '../../api/meta/status-error.ts';
import { compareVersions } from '../../api/meta/version-order.ts';
import type { ResourceInfo, SubresourceInfo } from '../../api/schema/schema.ts';
import type { AggregatedVersion } from '../registry/aggregation/aggregator.ts';
import type { ResourceCatalog } from '../model/rest.ts';
import { acceptClauses, type AcceptClause } from '../../api/http/accept.ts';
import { responseJson } from '../../api/http/pretty.ts';
import { Document, sendDocument, SHARED } from './document.ts';
import { asksForForm, checkProduced, formatOf, isPretty, type Format } from './media-type.ts';
import { pageNotFound, reading, type PathHandlers } from './path-handlers.ts';
import type { ApiRequest, MaybePromise } from './request.ts';
import { storageVersionHash } from './storage-version-hash.ts';
import { methodNotAllowed, notFound } from './router.ts';
import { JSON_TYPE, PROTOBUF_TYPE, YAML_TYPE } from '../../api/http/media-types.ts';

interface DiscoveryOptions {
  readonly catalog: ResourceCatalog;
  readonly protobuf: ProtobufCodec;
  /** The `host:port` that discovery publishes for clients outside of the cluster. */
  readonly serverAddress: string;
  /** The groups and resources of aggregated servers. */
  readonly aggregated?: {
    versions(): readonly AggregatedVersion[];
    onChange(listener: () => void): void;
  };
}

const TYPES: Readonly<Record<Format, string>> = { json: JSON_TYPE, yaml: YAML_TYPE, protobuf: PROTOBUF_TYPE };

const PRODUCED = [JSON_TYPE, YAML_TYPE, PROTOBUF_TYPE];

interface Wanted {
  readonly format: Format;
  readonly pretty: boolean;
  /** The version of `apidiscovery.k8s.io` for the aggregated document, or an empty text for the plain one. */
  readonly aggregated: '' | 'v2';
}

interface Group {
  readonly name: string;
  /** The versions, preferred first. */
  readonly versions: ReadonlyMap<string, readonly ResourceInfo[]>;
  /** The versions whose server does not respond. */
  readonly stale: ReadonlySet<string>;
}

/** Serves `/api`, `/apis` and the lists of the groups and versions below. */
export function installDiscovery(paths: PathHandlers, options: DiscoveryOptions): void {
  const discovery = new Discovery(options);
  paths.service(
    '/api',
    reading((request) => discovery.serve(request, '/api', { aggregates: true })),
  );
  // In kube-apiserver, the aggregator serves this path for every method.
  paths.service('/apis', (request) =>
    discovery.serve(request, '/apis', { aggregates: !endsInSlash(request.info.path) }),
  );
  const serve = (request: ApiRequest): MaybePromise<void> => {
    const path = bare(request.info.path);
    const isRead = request.exchange.method === 'GET' || !isRoute(path) || discovery.isCustomGroup(path);
    if (!isRead && discovery.exists(path)) throw methodNotAllowed();
    return discovery.serve(request, path, { aggregates: false });
  };
  paths.tree('/api/', serve);
  paths.tree('/apis/', serve);
}

const bare = (path: string): string => trimEnd(path, '/');
/** Whether the path ends in a slash. kube-apiserver serves only the plain form of discovery there. */
const endsInSlash = (path: string): boolean => path.endsWith('/');

type TypedDocument = Readonly<Record<string, unknown>> & { readonly apiVersion?: string; readonly kind: string };

/** Returns the binary form of a document. */
const enveloped = (codec: ProtobufCodec, document: TypedDocument): Buffer =>
  Buffer.concat(
    codec.envelop(document.apiVersion ?? '', document.kind, codec.encode({ apiVersion: 'v1', ...document })),
  );

class Discovery {
  readonly #options: DiscoveryOptions;
  readonly #documents = new Map<string, Document>();
  #groups: ReadonlyMap<string, Group> | undefined;

  constructor(options: DiscoveryOptions) {
    this.#options = options;
    const changed = (): void => {
      this.#documents.clear();
      this.#groups = undefined;
    };
    options.catalog.onChange(changed);
    options.aggregated?.onChange(changed);
  }

  /** Sends the document of a path. With `aggregates`, the client may request the aggregated form. */
  async serve(request: ApiRequest, path: string, { aggregates }: { readonly aggregates: boolean }): Promise<void> {
    if (!this.exists(path)) return this.#missing(request, path);
    const negotiated = this.#negotiated(request, path, aggregates);
    const wanted = {
      ...negotiated,
      pretty: negotiated.format === 'json' && (negotiated.pretty || request.wantsPretty),
    };
    const key = `${wanted.format} ${wanted.pretty} ${wanted.aggregated} ${path}`;
    let document = this.#documents.get(key);
    if (document === undefined) {
      const value = wanted.aggregated === '' ? this.#plain(path) : this.#aggregated(path);
      if (value === undefined) return this.#missing(request, path);
      document = this.#encode(value, wanted);
      this.#documents.set(key, document);
    }
    await sendDocument(request, document, wanted.aggregated === '' ? { tagged: false } : SHARED);
  }

  exists(path: string): boolean {
    const [root, ...parts] = path.split('/').filter((part) => part !== '');
    if (parts.length === 0) return true;
    if (parts.length > (root === 'api' ? 1 : 2)) return false;
    const [group = '', version] = root === 'api' ? ['', ...parts] : parts;
    const found = root === 'apis' && group === '' ? undefined : this.#grouped().get(group);
    return found !== undefined && (version === undefined || found.versions.has(version));
  }

  /** Returns the form that the client accepts, or throws a 406, which has no details for a group without built-in resources. */
  #negotiated(request: ApiRequest, path: string, aggregates: boolean): Wanted {
    try {
      return negotiate(request.header('accept'), aggregates, isRoute(path));
    } catch (error) {
      if (!isStatusError(error, 'NotAcceptable') || !this.isCustomGroup(path)) throw error;
      throw newNotAcceptable(`only the following media types are accepted: ${PRODUCED.join(', ')}`);
    }
  }

  /** Whether all resources in the group of the path are of definitions or of aggregated servers. */
  isCustomGroup(path: string): boolean {
    const [root, group = ''] = path.split('/').filter((part) => part !== '');
    const rows = root === 'apis' ? [...(this.#grouped().get(group)?.versions.values() ?? [])].flat() : [];
    return rows.length > 0 && rows.every(({ custom }) => custom !== undefined);
  }

  /** Responds to a path that is not found, with a Status or with plain text, as kube-apiserver does. */
  #missing(request: ApiRequest, path: string): void | Promise<void> {
    const [root, group = ''] = path.split('/').filter((part) => part !== '');
    const rows = [...(this.#grouped().get(group)?.versions.values() ?? [])].flat();
    if (root === 'api' || rows.some(({ custom }) => custom === undefined)) throw notFound();
    return pageNotFound(request);
  }

  #encode(value: TypedDocument, wanted: Wanted): Document {
    const suffix =
      wanted.aggregated === '' ? '' : `;g=apidiscovery.k8s.io;v=${wanted.aggregated};as=APIGroupDiscoveryList`;
    const contentType = `${TYPES[wanted.format]}${suffix}`;
    switch (wanted.format) {
      case 'json':
        return new Document(contentType, Buffer.from(responseJson(value, wanted)));
      case 'yaml':
        return new Document(contentType, encodeYaml(value));
      case 'protobuf':
        return new Document(contentType, enveloped(this.#options.protobuf, value));
    }
  }

  #grouped(): ReadonlyMap<string, Group> {
    this.#groups ??= groupsOf(this.#options.catalog.resources(), this.#options.aggregated?.versions() ?? []);
    return this.#groups;
  }

  /** Returns the unaggregated document of a path, or `undefined` if the path does not exist. */
  #plain(path: string): TypedDocument | undefined {
    const [root, ...parts] = path.split('/').filter((part) => part !== '');
    const [group = '', version] = root === 'api' ? ['', ...parts] : parts;
    if (version !== undefined) return this.#resources(group, version);
    if (root === 'api') return this.#versions();
    if (parts.length === 0) {
      const groups = [...this.#grouped().values()].filter(({ name }) => name !== '');
      return { kind: 'APIGroupList', apiVersion: 'v1', groups: groups.map(groupDocument) };
    }
    const found = this.#grouped().get(group);
    return found === undefined ? undefined : { kind: 'APIGroup', apiVersion: 'v1', ...groupDocument(found) };
  }

  #versions(): TypedDocument {
    const versions = [...(this.#grouped().get('')?.versions.keys() ?? [])];
    const serverAddressByClientCIDRs = [{ clientCIDR: '0.0.0.0/0', serverAddress: this.#options.serverAddress }];
    return { kind: 'APIVersions', versions, serverAddressByClientCIDRs };
  }

  #resources(group: string, version: string): TypedDocument | undefined {
    const found = this.#grouped().get(group);
    const rows = found?.versions.get(version);
    if (found === undefined || rows === undefined) return undefined;
    const sorted = rows.toSorted((a, b) => (a.resource < b.resource ? -1 : 1));
    const resources = sorted.flatMap((row) => [
      resourceDocument(row, storageVersionHash(found.versions, row)),
      ...subresourcesOf(row).map((subresource) => subresourceDocument(row, subresource)),
    ]);
    return {
      kind: 'APIResourceList',
      ...(group === '' ? {} : { apiVersion: 'v1' }),
      groupVersion: apiVersionOf({ group, version }),
      resources,
    };
  }

  #aggregated(path: string): TypedDocument {
    const core = path === '/api';
    const groups = [...this.#grouped().values()].filter(({ name }) => (name === '') === core);
    return {
      kind: 'APIGroupDiscoveryList',
      apiVersion: 'apidiscovery.k8s.io/v2',
      metadata: {},
      items: groups.map((group) => ({
        metadata: group.name === '' ? {} : { name: group.name },
        versions: [...group.versions].map(([name, rows]) => ({
          version: name,
          resources: rows.map((row) => aggregatedResource(row)).sort((a, b) => (a.resource < b.resource ? -1 : 1)),
          freshness: group.stale.has(name) ? 'Stale' : 'Current',
        })),
      })),
    };
  }
}

/**
 * Whether kube-apiserver has a route for the document, which serves GET alone. Its aggregator serves the documents of all
 * groups and of one group, for every method.
 */
function isRoute(path: string): boolean {
  const [root, ...parts] = path.split('/').filter((part) => part !== '');
  return root === 'api' || parts.length > 1;
}

/** Chooses the format of a discovery document by the `Accept` header. Throws a 406. */
function negotiate(accept: string | undefined, aggregates: boolean, checksRoute: boolean): Wanted {
  if (checksRoute) checkProduced(accept, PRODUCED);
  const found = acceptClauses(accept).map((clause) => satisfy(clause, aggregates));
  // kube-apiserver searches every clause for the aggregated form before it considers a plain one.
  const wanted =
    found.find((one) => one !== undefined && one.aggregated !== '') ?? found.find((one) => one !== undefined);
  if (wanted !== undefined) return wanted;
  throw newNotAcceptable(`only the following media types are accepted: ${PRODUCED.join(', ')}`);
}

function satisfy(clause: AcceptClause, aggregates: boolean): Wanted | undefined {
  const format = formatOf(clause, { serverVersion: '' });
  if (format === undefined) return undefined;
  const pretty = isPretty(clause);
  if (!asksForForm(clause)) return { format, pretty, aggregated: '' };
  const { params } = clause;
  const as = params.get('as');
  const version = params.get('v');
  if (!aggregates || as !== 'APIGroupDiscoveryList' || params.get('g') !== 'apidiscovery.k8s.io') return undefined;
  return version === 'v2' ? { format, pretty, aggregated: version } : undefined;
}

/** The priorities of custom resources. */
const CUSTOM_PRIORITY = { groupPriority: 1000, versionPriority: 100 };

/** Returns the groups by name, in the order of discovery: built-in ones first, and others by priority and name. */
function groupsOf(rows: readonly ResourceInfo[], aggregated: readonly AggregatedVersion[]): ReadonlyMap<string, Group> {
  const builtIn = new Map<string, Map<string, readonly ResourceInfo[]>>();
  const others = new Map<string, AggregatedVersion[]>();
  const add = (one: AggregatedVersion): void => {
    others.set(one.group, [...(others.get(one.group) ?? []), one]);
  };
  for (const version of versionsOf(rows)) {
    const { group } = version;
    if (version.rows.some((row) => row.custom !== undefined)) add(version);
    else
      builtIn.set(
        group,
        (builtIn.get(group) ?? new Map<string, readonly ResourceInfo[]>()).set(version.version, version.rows),
      );
  }
  aggregated.forEach(add);
  const found = new Map<string, Group>();
  for (const [name, versions] of builtIn) found.set(name, { name, versions, stale: new Set() });
  const groups = [...others].map(([name, versions]) => ({
    name,
    versions,
    priority: Math.max(...versions.map(({ groupPriority }) => groupPriority)),
  }));
  groups.sort((a, b) => b.priority - a.priority || (a.name < b.name ? -1 : 1));
  for (const { name, versions: all } of groups) {
    const versions = all.sort((a, b) => b.versionPriority - a.versionPriority || compareVersions(a.version, b.version));
    const before = found.get(name);
    found.set(name, {
      name,
      versions: new Map([...(before?.versions ?? []), ...versions.map((one) => [one.version, one.rows] as const)]),
      stale: new Set(versions.filter(({ stale }) => stale).map(({ version }) => version)),
    });
  }
  return found;
}

function versionsOf(rows: readonly ResourceInfo[]): AggregatedVersion[] {
  const found = new Map<string, ResourceInfo[]>();
  for (const row of rows) {
    const key = apiVersionOf(row);
    const listed = found.get(key);
    if (listed === undefined) found.set(key, [row]);
    else listed.push(row);
  }
  return [...found.values()].flatMap((all) => {
    const [first] = all;
    if (first === undefined) return [];
    return [{ group: first.group, version: first.version, rows: all, stale: false, ...CUSTOM_PRIORITY }];
  });
}

function groupDocument({ name, versions }: Group): object {
  const all = [...versions.keys()].map((version) => ({ groupVersion: `${name}/${version}`, version }));
  return { name, versions: all, preferredVersion: all[0] };
}

interface Named {
  readonly name: string;
  readonly [member: string]: unknown;
}

function resourceDocument(row: ResourceInfo, hash: string): Named {
  return {
    name: row.resource,
    singularName: row.singular,
    namespaced: row.namespaced,
    kind: row.kind,
    verbs: row.verbs,
    ...(row.shortNames.length === 0 ? {} : { shortNames: row.shortNames }),
    ...(row.categories.length === 0 ? {} : { categories: row.categories }),
    // Resources that are not stored (reviews, bindings) have no storage version.
    ...(row.verbs.includes('list') && row.resource !== 'componentstatuses' ? { storageVersionHash: hash } : {}),
  };
}

/** Returns the subresources in the order of discovery. */
function subresourcesOf({ custom, subresources }: ResourceInfo): readonly SubresourceInfo[] {
  return custom === undefined ? subresources.toSorted((a, b) => (a.name < b.name ? -1 : 1)) : subresources;
}

function subresourceDocument(row: ResourceInfo, { name, group, version, kind, verbs }: SubresourceInfo): Named {
  return {
    name: `${row.resource}/${name}`,
    singularName: '',
    namespaced: row.namespaced,
    ...(isOwn(row, group, version) ? {} : { group, version }),
    kind,
    verbs,
  };
}

/** Returns the kind of a row. The group and version of a built-in kind are empty, as in kube-apiserver. */
function ownKind(row: ResourceInfo, kind: string): object {
  return row.custom === undefined ? { group: '', version: '', kind } : { group: row.group, version: row.version, kind };
}

function isOwn(row: ResourceInfo, group: string, version: string): boolean {
  return group === row.group && version === row.version;
}

function aggregatedResource(row: ResourceInfo): { readonly resource: string; readonly [member: string]: unknown } {
  return {
    resource: row.resource,
    responseKind: ownKind(row, row.kind),
    scope: row.namespaced ? 'Namespaced' : 'Cluster',
    singularResource: row.singular,
    verbs: row.verbs,
    ...(row.shortNames.length === 0 ? {} : { shortNames: row.shortNames }),
    ...(row.categories.length === 0 ? {} : { categories: row.categories }),
    ...(row.subresources.length === 0
      ? {}
      : {
          subresources: row.subresources.map(({ name, group, version, kind, verbs }) => ({
            subresource: name,
            responseKind: isOwn(row, group, version) ? ownKind(row, kind) : { group, version, kind },
            verbs,
          })),
        }),
  };
}
