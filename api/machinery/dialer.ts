/**
 * The one way out: every connection to an address that the API, another server's answer or a manifest names is opened here.
 *
 * A caller states the purpose. `PURPOSES` says which addresses that purpose refuses and which redirects it follows. A name is
 * resolved once, all addresses that it has are checked, and the socket connects to a checked address, so that a name which
 * resolves differently a moment later leads nowhere else. Connections to addresses from flags and from files that flags name
 * have the purpose `configured`, which refuses nothing. `test/architecture.test.ts` lists the few other files that connect.
 */
import { type LookupAddress, type LookupAllOptions, lookup } from 'node:dns';
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http';
import { type RequestOptions as TlsRequestOptions, request as httpsRequest } from 'node:https';
import { connect as connectTcp, isIP, type LookupFunction, type Socket } from 'node:net';
import { type AddressClass, addressClasses, bareAddress } from './address-class.ts';
import { request as httpRequest } from './node-http.ts';

export interface PurposeRules {
  /** `own`: a port of the program that dials. */
  readonly refuses: readonly (AddressClass | 'own')[];
  /** `same-host`: other ports and schemes of one host. `any`: each hop is checked, and none leads from TLS to plain text. */
  readonly redirects: 'none' | 'same-host' | 'any';
  readonly connectTimeoutMs: number;
}

const NOWHERE = ['unspecified', 'multicast'] as const;
/** What kube-apiserver refuses to proxy to, and beyond it the metadata servers of clouds. */
const LOCAL = [...NOWHERE, 'loopback', 'link-local', 'metadata'] as const;

export const PURPOSES = {
  /** Node agents. Nodes write these addresses themselves; the connection carries the identity towards kubelets. */
  kubelet: { refuses: [...LOCAL, 'own'], redirects: 'none', connectTimeoutMs: 30_000 },
  /** Proxies to pods, services and other ports of nodes. No identity. */
  proxy: { refuses: [...LOCAL, 'own'], redirects: 'none', connectTimeoutMs: 30_000 },
  /** Servers of APIServices. The connection carries the identity of the front proxy; a request to oneself would loop. */
  aggregation: { refuses: [...LOCAL, 'own'], redirects: 'none', connectTimeoutMs: 30_000 },
  /**
   * Admission and conversion webhooks that name a service. An aggregated server may be the webhook, called through the service
   * `kubernetes`, so the own port is allowed.
   */
  'webhook-service': { refuses: LOCAL, redirects: 'none', connectTimeoutMs: 30_000 },
  /** Webhooks that name a URL: an administrator wrote it and may mean this host, as with kube-apiserver. */
  'webhook-url': { refuses: [...NOWHERE, 'metadata'], redirects: 'none', connectTimeoutMs: 30_000 },
  /** Key sets whose URL another host's discovery document named. */
  'issuer-keys': { refuses: LOCAL, redirects: 'none', connectTimeoutMs: 10_000 },
  /** Where the server of `--manifest-url` redirects to. */
  'manifest-redirect': { refuses: LOCAL, redirects: 'any', connectTimeoutMs: 10_000 },
  /** Probes and lifecycle hooks. `host` may be any host, also this one, and a pod of the host network is this host. */
  probe: { refuses: ['metadata', 'multicast'], redirects: 'same-host', connectTimeoutMs: 60_000 },
  /** Flags, and files that flags name: webhooks, issuers, audit, `--manifest-url` itself. */
  configured: { refuses: [], redirects: 'none', connectTimeoutMs: 30_000 },
} as const satisfies Readonly<Record<string, PurposeRules>>;

export type Purpose = keyof typeof PURPOSES;

export interface DialTarget {
  readonly purpose: Purpose;
  /** Who is called, as `loopbackTargets` names it: `node/n1`, `service/ns/name`. */
  readonly name?: string;
  /** A name or an address, with or without the brackets of IPv6. */
  readonly host: string;
  readonly port: number;
}

type Unaddressed<T> = Omit<T, 'host' | 'hostname' | 'port' | 'lookup' | 'createConnection' | 'socketPath' | 'protocol'>;
export type DialRequestOptions = DialTarget & { readonly secure: boolean } & Unaddressed<TlsRequestOptions>;

/** The address may not be dialed for the purpose. */
export class DialRefusedError extends Error {
  override readonly name = 'DialRefusedError';
}

export interface DialerOptions {
  /** Whether this program listens there. */
  readonly isOwn?: (address: string, port: number) => boolean;
  /** Those that an administrator declared to be on this host's loopback. */
  readonly loopbackTargets?: ReadonlySet<string>;
  /** All addresses of a name; the host's resolver unless a test gives another. */
  readonly resolve?: ResolveName;
}

export type ResolveName = (
  hostname: string,
  options: LookupAllOptions,
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

export interface Dialer {
  /** An HTTP(S) request; `end()` is the caller's. Throws `DialRefusedError` for an address, emits it for a name. */
  request(options: DialRequestOptions, onResponse?: (response: IncomingMessage) => void): ClientRequest;
  /** A TCP connection, or its error. Throws `DialRefusedError` for an address, emits it for a name. */
  connect(target: DialTarget & { readonly signal?: AbortSignal }): Socket;
  /** Throws `DialRefusedError` for an address; a name passes, for it is checked when it is resolved. */
  check(target: DialTarget): void;
}

export function createDialer({
  isOwn = () => false,
  loopbackTargets = new Set(),
  resolve = lookup,
}: DialerOptions = {}): Dialer {
  const refusal = (target: DialTarget, address: string): DialRefusedError | undefined => {
    const rules: PurposeRules = PURPOSES[target.purpose];
    const classes: readonly (AddressClass | 'own')[] = isOwn(address, target.port)
      ? [...addressClasses(address), 'own']
      : addressClasses(address);
    const isDeclared = target.name !== undefined && loopbackTargets.has(target.name);
    const refused = classes.find((one) => rules.refuses.includes(one) && !(one === 'loopback' && isDeclared));
    if (refused === undefined) return undefined;
    const named = target.host === address ? '' : ` of ${target.host}`;
    const what = refused === 'own' ? 'is of this server' : `is a ${refused} address`;
    return new DialRefusedError(`address not allowed: ${address}${named} ${what}`);
  };
  const checked = (given: DialTarget): { readonly host: string; readonly port: number; lookup: LookupFunction } => {
    const host = given.host.replace(/^\[|\]$/g, '');
    const refused = isIP(bareAddress(host)) === 0 ? undefined : refusal({ ...given, host }, host);
    if (refused !== undefined) throw refused;
    return {
      host,
      port: given.port,
      lookup: checkedLookup(resolve, (address) => refusal({ ...given, host }, address)),
    };
  };
  return {
    check: (target) => {
      checked(target);
    },
    request(options, onResponse) {
      const { purpose, name: _name, secure, ...rest } = options;
      const common: RequestOptions = { ...rest, ...checked(options) };
      const request = secure ? httpsRequest(common, onResponse) : httpRequest(common, onResponse);
      request.once('socket', (socket) => limitConnecting(socket, { secure, purpose }));
      return request;
    },
    connect({ signal, ...target }) {
      const socket = connectTcp({ ...checked(target), ...(signal === undefined ? {} : { signal }) });
      limitConnecting(socket, { secure: false, purpose: target.purpose });
      return socket;
    },
  };
}

function limitConnecting(socket: Socket, options: { readonly secure: boolean; readonly purpose: Purpose }): void {
  if (!socket.connecting) return;
  const timeoutMs = PURPOSES[options.purpose].connectTimeoutMs;
  const idleMs = socket.timeout ?? 0;
  const late = (): void => void socket.destroy(new Error('dial timed out'));
  socket.setTimeout(timeoutMs, late);
  socket.once(options.secure ? 'secureConnect' : 'connect', () => {
    socket.removeListener('timeout', late);
    socket.setTimeout(idleMs);
  });
}

/** Refuses the name if any of its addresses is refused: which one is taken is the resolver's choice. */
function checkedLookup(resolve: ResolveName, refusal: (address: string) => Error | undefined): LookupFunction {
  return (hostname, options, callback) => {
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return callback(error, []);
      for (const { address } of addresses) {
        const refused = refusal(address);
        if (refused !== undefined) return callback(refused, []);
      }
      if (options.all === true) return callback(null, addresses);
      const [first] = addresses;
      return first === undefined
        ? callback(new Error(`${hostname} has no address`), [])
        : callback(null, first.address, first.family);
    });
  };
}

/**
 * Where a redirect leads, `undefined` where the purpose does not follow it there. The caller dials it for the same purpose
 * again, and sends headers that name a user or hold a credential to the same origin alone.
 */
export function redirectTarget(purpose: Purpose, from: URL, location: string): URL | undefined {
  const rules: PurposeRules = PURPOSES[purpose];
  const next = URL.parse(location, from);
  if (next === null || (next.protocol !== 'http:' && next.protocol !== 'https:')) return undefined;
  switch (rules.redirects) {
    case 'none':
      return undefined;
    case 'same-host':
      return next.hostname === from.hostname ? next : undefined;
    case 'any':
      return from.protocol === 'https:' && next.protocol === 'http:' ? undefined : next;
  }
}
