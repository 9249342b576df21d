/**
 * Finds the targets of streams. Logs, exec, attach and port-forward go to the agent of the pod's node. Proxy requests go to the
 * address of the node, of the pod, or of a pod behind the service.
 */
import { quoteText } from '../../../../api/meta/quote.ts';
import type { V1Endpoints, V1Node, V1Service } from '@kubernetes/client-node';
import type { Pod } from '../../../../api/kinds/pod-types.ts';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { forwardingFault } from '../../../../api/http/request-path.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import {
  newBadRequest,
  newErrorWithoutReason,
  newNotFound,
  newServiceUnavailable,
} from '../../../../api/meta/status-error.ts';
import type { ResourceInfo, SubresourceInfo } from '../../../../api/schema/schema.ts';
import type { AgentOrigin, ConnectRequest, ConnectTarget, RequestContext, Rest } from '../../../model/rest.ts';
import { currentEntry } from '../../store-read.ts';
import { podLogQuery } from './pod-log-options.ts';
import { admissionAttributes, type Store } from '../../store.ts';
import { SERVING_KEYS } from '../../../../api/meta/orchlet-annotations.ts';

type Node = Kind<Pick<V1Node, 'spec' | 'status'>>;
type Service = Kind<Pick<V1Service, 'spec'>>;
type Endpoints = Kind<Pick<V1Endpoints, 'subsets'>>;
type Address = NonNullable<NonNullable<Endpoints['subsets']>[number]['addresses']>[number];

interface ConnectStores {
  readonly pods: Store;
  readonly nodes: Store;
  readonly services: Store;
  readonly endpoints: Store;
  /** The value of `--kubelet-preferred-address-types`. */
  readonly addressTypes: readonly string[];
}

/**
 * The default order of address types. kube-apiserver begins with host names, which the host of a control plane can rarely
 * resolve.
 */
export const DEFAULT_ADDRESS_TYPES = ['InternalIP', 'Hostname', 'InternalDNS', 'ExternalDNS', 'ExternalIP'] as const;
const AGENT_PORT = 10250;

/** Returns the target of a request to the agent of a node. */
function toAgent(stores: ConnectStores, node: string, target: string): ConnectTarget {
  return { origin: agentOf(stores, node), target, purpose: 'kubelet', name: `node/${node}`, plain: false };
}

function agentOf(stores: ConnectStores, nodeName: string): AgentOrigin {
  const origin = agentOrigin(currentEntry(stores.nodes, '', nodeName).object, stores.addressTypes);
  if (origin === undefined) throw newErrorWithoutReason('no preferred addresses found; known addresses: []');
  return origin;
}

/** Returns the server of the node's agent, or `undefined` while the node has no address of these types. */
export function agentOrigin(object: KubeObject, addressTypes: readonly string[]): AgentOrigin | undefined {
  const { metadata, status } = object as Node;
  const addresses = status?.addresses ?? [];
  const published = metadata.annotations?.[SERVING_KEYS];
  for (const addressType of addressTypes) {
    const found = addresses.find(({ type, address }) => type === addressType && (address ?? '') !== '');
    if (found?.address === undefined) continue;
    const endpoint = status?.daemonEndpoints?.kubeletEndpoint as { Port?: number } | undefined;
    return {
      secure: true,
      host: found.address,
      port: endpoint?.Port ?? AGENT_PORT,
      ...(published === undefined ? {} : { servingKeys: published.split(',') }),
    };
  }
  return undefined;
}

/** Builds a path from segments, which it encodes, and a query. */
function targetOf(segments: readonly string[], query: URLSearchParams): string {
  const path = segments.map((segment) => `/${encodeURIComponent(segment)}`).join('');
  return query.size === 0 ? path : `${path}?${query.toString()}`;
}

function nodeOf(pod: Pod): string {
  const node = pod.spec?.nodeName ?? '';
  if (node === '') throw newBadRequest(`pod ${pod.metadata.name ?? ''} does not have a host assigned`);
  return node;
}

/** Returns the requested container, or the only one of the pod. Throws a 400 if there is no such container. */
function containerOf(pod: Pod, requested: string): string {
  const name = pod.metadata.name ?? '';
  const ordinary = (pod.spec?.containers ?? []).map((one) => one.name ?? '');
  const init = (pod.spec?.initContainers ?? []).map((one) => one.name ?? '');
  const ephemeral = (pod.spec?.ephemeralContainers ?? []).map((one) => one.name ?? '');
  if (requested !== '') {
    if (![...ordinary, ...init, ...ephemeral].includes(requested))
      throw newBadRequest(`container ${requested} is not valid for pod ${name}`);
    return requested;
  }
  const [only] = ordinary;
  if (ordinary.length === 1 && only !== undefined) return only;
  if (ordinary.length === 0) throw newBadRequest(`a container name must be specified for pod ${name}`);
  const others = init.length === 0 ? '' : ` or one of the init containers: [${init.join(' ')}]`;
  throw newBadRequest(
    `a container name must be specified for pod ${name}, choose one of: [${ordinary.join(' ')}]${others}`,
  );
}

const isTrue = (text: string | null): boolean => text !== null && text !== '' && text !== 'false' && text !== '0';
/** The switches of exec and attach: the parameter of the client, and that of the agent. */
const STREAMS = [
  ['stdin', 'input'],
  ['stdout', 'output'],
  ['stderr', 'error'],
  ['tty', 'tty'],
] as const;

function execTarget(
  stores: ConnectStores,
  { namespace, name }: { readonly namespace: string; readonly name: string },
  verb: 'exec' | 'attach',
  query: URLSearchParams,
): ConnectTarget {
  const pod: Pod = currentEntry(stores.pods, namespace, name).object;
  const container = containerOf(pod, query.get('container') ?? '');
  const node = nodeOf(pod);
  const sent = new URLSearchParams();
  for (const [name, agentName] of STREAMS) if (isTrue(query.get(name))) sent.set(agentName, '1');
  if (verb === 'exec') for (const word of query.getAll('command')) sent.append('command', word);
  const target = targetOf([verb, namespace, name, container], sent);
  return toAgent(stores, node, target);
}

/** Returns the target of a log request, or `empty` if the pod has no node yet, so that its log is empty. */
function logTarget(
  stores: ConnectStores,
  namespace: string,
  name: string,
  query: URLSearchParams,
): ConnectTarget | 'empty' {
  const sent = podLogQuery(name, query);
  const pod: Pod = currentEntry(stores.pods, namespace, name).object;
  const container = containerOf(pod, query.get('container') ?? '');
  const node = pod.spec?.nodeName ?? '';
  if (node === '') return 'empty';
  const target = targetOf(['containerLogs', namespace, name, container], sent);
  const isInsecure = isTrue(query.get('insecureSkipTLSVerifyBackend'));
  return { ...toAgent(stores, node, target), plain: true, ...(isInsecure ? { anyCertificate: true } : {}) };
}

function forwardTarget(stores: ConnectStores, namespace: string, name: string, query: URLSearchParams): ConnectTarget {
  const node = nodeOf(currentEntry(stores.pods, namespace, name).object);
  const sent = new URLSearchParams(query.getAll('ports').map((port) => ['port', port]));
  const target = targetOf(['portForward', namespace, name], sent);
  return toAgent(stores, node, target);
}

interface ProxyName {
  readonly scheme: 'http' | 'https';
  readonly name: string;
  readonly port: string;
}

/** Parses `[scheme:]name[:port]`. Throws kube-apiserver's 400 for any other text. */
function proxyName(kind: 'pod' | 'node' | 'service', text: string): ProxyName {
  const parts = text.split(':');
  const [scheme, name = '', port = ''] = parts.length === 3 ? parts : ['', ...parts];
  if (parts.length > 3 || !['', 'http', 'https'].includes(scheme ?? '') || name === '')
    throw newBadRequest(`invalid ${kind} request ${quoteText(text)}`);
  return { scheme: scheme === 'https' ? 'https' : 'http', name, port };
}

/** Parses a port. Throws a 400 for any other text. */
function portNumber(text: string): number {
  const number = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (number < 1 || number > 65_535) throw newBadRequest(`invalid port ${quoteText(text)}`);
  return number;
}

const DEFAULT_PORTS = { http: 80, https: 443 } as const;

/**
 * Returns the client's path and query unchanged, byte for byte, except that an empty path becomes `/`. Throws a 400 for those
 * that must not be forwarded.
 */
function forwardedTarget({ rawPath, rawQuery }: ConnectRequest): string {
  const fault = forwardingFault(rawPath, rawQuery);
  if (fault !== '') throw newBadRequest(`the path cannot be forwarded: ${fault}`);
  const path = rawPath === '' ? '/' : rawPath;
  return rawQuery === '' ? path : `${path}?${rawQuery}`;
}

function podProxy(stores: ConnectStores, namespace: string, text: string, request: ConnectRequest): ConnectTarget {
  const { scheme, name, port } = proxyName('pod', text);
  const pod: Pod = currentEntry(stores.pods, namespace, name).object;
  const address = pod.status?.podIP ?? '';
  if (address === '') throw newBadRequest('address not allowed');
  const first = pod.spec?.containers?.flatMap(({ ports }) => ports ?? [])[0]?.containerPort;
  const number = port === '' ? (first ?? DEFAULT_PORTS[scheme]) : portNumber(port);
  const origin = { secure: scheme === 'https', host: address, port: number };
  return { origin, target: forwardedTarget(request), purpose: 'proxy', plain: false };
}

function nodeProxy(stores: ConnectStores, text: string, request: ConnectRequest): ConnectTarget {
  const { name, port } = proxyName('node', text);
  const agent = agentOf(stores, name);
  const target = forwardedTarget(request);
  if (port === '' || portNumber(port) === agent.port) return toAgent(stores, name, target);
  const origin = { secure: false, host: agent.host, port: portNumber(port) };
  return { origin, target, purpose: 'proxy', plain: false };
}

/**
 * Chooses an address of the service's Endpoints. It must be one of a pod, so that nobody can direct the server elsewhere.
 * Throws a 503 if there is no such address or port, and a 404 if the service has no Endpoints.
 */
function serviceProxy(
  stores: ConnectStores,
  { namespace, text }: { readonly namespace: string; readonly text: string },
  request: ConnectRequest,
): ConnectTarget {
  const { scheme, name, port } = proxyName('service', text);
  const portName = /^\d+$/.test(port) ? nameOfPort(stores, { namespace, name }, Number(port)) : port;
  const endpoints: Endpoints | undefined = stores.endpoints.cache.get(namespace, name)?.object;
  if (endpoints === undefined) throw newNotFound({ group: '', resource: 'services' }, name);
  const subsets = endpoints.subsets ?? [];
  if (subsets.length === 0) throw newServiceUnavailable(`no endpoints available for service ${quoteText(name)}`);
  for (const subset of rotated(subsets)) {
    const target = subset.ports?.find((one) => (one.name ?? '') === portName)?.port;
    const host = rotated(subset.addresses ?? []).find((one) => isOfPod(stores, namespace, one))?.ip;
    if (target === undefined || host === undefined) continue;
    const origin = { secure: scheme === 'https', host, port: target };
    return { origin, target: forwardedTarget(request), purpose: 'proxy', plain: false };
  }
  throw newServiceUnavailable(`no endpoints available for service ${quoteText(text)}`);
}

function nameOfPort(
  stores: ConnectStores,
  { namespace, name }: { readonly namespace: string; readonly name: string },
  port: number,
): string {
  const service: Service = currentEntry(stores.services, namespace, name).object;
  const found = service.spec?.ports?.find((one) => one.port === port);
  if (found === undefined) throw newServiceUnavailable(`no service port ${port} found for service ${quoteText(name)}`);
  return found.name ?? '';
}

function isOfPod(stores: ConnectStores, namespace: string, { ip, targetRef }: Address): boolean {
  if (targetRef === undefined || targetRef.namespace !== namespace) return false;
  const pod: Pod | undefined = stores.pods.cache.get(namespace, targetRef.name ?? '')?.object;
  return pod?.status?.podIPs?.some((one) => one.ip === ip) === true;
}

/** Returns the items in their order, beginning with a random one. */
function rotated<Item>(items: readonly Item[]): Item[] {
  const start = Math.floor(Math.random() * items.length);
  return [...items.slice(start), ...items.slice(0, start)];
}

/** Returns the object that admission sees for a connection: the query in the form of the options kind. */
function connectOptions(kind: string, { query, path }: ConnectRequest): KubeObject {
  const options: Record<string, unknown> = {};
  if (kind === 'PodExecOptions' || kind === 'PodAttachOptions') {
    for (const [name] of STREAMS) if (isTrue(query.get(name))) options[name] = true;
    const container = query.get('container') ?? '';
    if (container !== '') options['container'] = container;
    if (kind === 'PodExecOptions' && query.has('command')) options['command'] = query.getAll('command');
  } else if (kind === 'PodPortForwardOptions') {
    const ports = query.getAll('ports').flatMap((list) => list.split(',').map(forwardedPort));
    if (ports.length > 0) options['ports'] = ports;
  } else if (path !== '') options['path'] = path;
  return { kind, apiVersion: 'v1', metadata: {}, ...options };
}

/** Parses a port of 16 bits, as Go does. Throws a 400. */
function forwardedPort(text: string): number {
  const why = !/^\d+$/.test(text) ? 'invalid syntax' : Number(text) > 65_535 ? 'value out of range' : undefined;
  if (why === undefined) return Number(text);
  throw newBadRequest(`cannot convert to []int32: strconv.ParseUint: parsing ${quoteText(text)}: ${why}`);
}

/** Returns the endpoint of a stream, or `undefined` for a subresource that does not stream. */
export function createConnectRest(
  stores: ConnectStores,
  info: ResourceInfo,
  subresource: SubresourceInfo,
): Rest | undefined {
  const locate = locatorOf(stores, info.resource, subresource.name);
  if (locate === undefined) return undefined;
  return {
    info,
    subresource,
    async connect(context, namespace, name, request) {
      const attributes = admissionAttributes(context, {
        operation: 'CONNECT',
        endpoint: {
          info,
          subresource: subresource.name,
          kind: { group: '', version: 'v1', kind: subresource.kind },
          strategy: {},
        },
        namespace,
        name,
        object: connectOptions(subresource.kind, request),
        oldObject: undefined,
        options: {},
        dryRun: false,
      });
      // As in kube-apiserver, a log request is a get, for which admission does not run.
      if (subresource.name !== 'log') {
        await stores.pods.admission.admit(attributes, context.signal);
        await stores.pods.admission.validate(attributes, context.signal);
      }
      return await locate(context, namespace, name, request);
    },
  };
}

type Locator = (
  context: RequestContext,
  namespace: string,
  name: string,
  request: ConnectRequest,
) => ConnectTarget | 'empty' | Promise<ConnectTarget>;

function locatorOf(stores: ConnectStores, resource: string, subresource: string): Locator | undefined {
  switch (`${resource}/${subresource}`) {
    case 'pods/log':
      return (_context, namespace, name, { query }) => logTarget(stores, namespace, name, query);
    case 'pods/exec':
      return (_context, namespace, name, { query }) => execTarget(stores, { namespace, name }, 'exec', query);
    case 'pods/attach':
      return (_context, namespace, name, { query }) => execTarget(stores, { namespace, name }, 'attach', query);
    case 'pods/portforward':
      return (_context, namespace, name, { query }) => forwardTarget(stores, namespace, name, query);
    case 'pods/proxy':
      return (_context, namespace, name, request) => podProxy(stores, namespace, name, request);
    case 'nodes/proxy':
      return (_context, _namespace, name, request) => nodeProxy(stores, name, request);
    case 'services/proxy':
      return (_context, namespace, text, request) => serviceProxy(stores, { namespace, text }, request);
    default:
      return undefined;
  }
}
