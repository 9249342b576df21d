/**
 * Opens connections to addresses that come from the API, from another server's response or from a manifest.
 *
 * `PURPOSES` lists the addresses that the purpose of a connection refuses and the redirects that it follows. A name is resolved
 * once, all its addresses are checked, and the socket connects to a checked address. So a name that resolves differently a
 * moment later cannot bypass the check.
 */
import { type LookupAddress, type LookupAllOptions, lookup } from 'node:dns';
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http';
import { type RequestOptions as TlsRequestOptions, request as httpsRequest } from 'node:https';
import { connect as connectTcp, isIP, type LookupFunction, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { type Clock, systemClock } from '../machinery/clock.ts';
import { quoteText } from '../meta/quote.ts';
import { publicKeyHash } from '../pki/public-key-hash.ts';
import { type AddressClass, addressClasses, bareAddress } from './address-class.ts';
import { CostlyServers } from './costly-handshakes.ts';
import { request as httpRequest } from './node-http.ts';

interface PurposeRules {
  /** The refused classes of addresses. `own` means a port on which this program listens. */
  readonly refuses: readonly (AddressClass | 'own')[];
  /** `same-host` allows other ports and schemes of the same host. `any` refuses only redirects from TLS to plain text. */
  readonly redirects: 'none' | 'same-host' | 'any';
  /** How long connecting may take, and after it the TLS handshake. */
  readonly connectTimeoutMs: number;
}

const NOWHERE = ['unspecified', 'multicast'] as const;
/** The addresses to which kube-apiserver refuses to proxy, and the metadata servers of clouds. */
const LOCAL = [...NOWHERE, 'loopback', 'link-local', 'metadata'] as const;

/** The rules of each purpose. */
export const PURPOSES = {
  /** Connections to node agents, as the API server's kubelet client. Nodes write these addresses themselves. */
  kubelet: { refuses: [...LOCAL, 'own'], redirects: 'none', connectTimeoutMs: 30_000 },
  /** Proxy connections to pods, services and other ports of nodes. They carry no credentials. */
  proxy: { refuses: [...LOCAL, 'own'], redirects: 'none', connectTimeoutMs: 30_000 },
  /**
   * Connections to the servers of APIServices. They authenticate as the front proxy. A request to this server itself would
   * loop.
   */
  aggregation: { refuses: [...LOCAL, 'own'], redirects: 'none', connectTimeoutMs: 30_000 },
  /**
   * Connections to admission and conversion webhooks that name a service. An aggregated server may be the webhook and be called
   * through the service `kubernetes`, so the server's own port is allowed.
   */
  'webhook-service': { refuses: LOCAL, redirects: 'none', connectTimeoutMs: 30_000 },
  /** Connections to webhooks that name a URL. An administrator wrote the URL and may mean this host, as with kube-apiserver. */
  'webhook-url': { refuses: [...NOWHERE, 'metadata'], redirects: 'none', connectTimeoutMs: 30_000 },
  /** Requests for key sets whose URL comes from the discovery document of an issuer. */
  'issuer-keys': { refuses: LOCAL, redirects: 'none', connectTimeoutMs: 10_000 },
  /**
   * Connections of agents to API servers that the endpoints of the service `kubernetes` name. Others than administrators may be
   * able to write these. The connection authenticates as the node.
   */
  'listed-server': { refuses: LOCAL, redirects: 'none', connectTimeoutMs: 30_000 },
  /** Redirects of the server of `--manifest-url`. */
  'manifest-redirect': { refuses: LOCAL, redirects: 'any', connectTimeoutMs: 10_000 },
  /**
   * Probes and lifecycle hooks. Their `host` may be any host, this one included, and a pod of the host network runs on this
   * host.
   */
  probe: { refuses: ['metadata', 'multicast'], redirects: 'same-host', connectTimeoutMs: 60_000 },
  /**
   * Connections to addresses from flags and from files that flags name: webhooks, issuers, audit, and `--manifest-url` itself.
   */
  configured: { refuses: [], redirects: 'none', connectTimeoutMs: 30_000 },
} as const satisfies Readonly<Record<string, PurposeRules>>;

/** Why a connection is opened. */
export type Purpose = keyof typeof PURPOSES;

interface DialTarget {
  readonly purpose: Purpose;
  /** The name of the target in `loopbackTargets`: `node/n1`, `service/ns/name`. */
  readonly name?: string;
  /**
   * Who chose the target, if it may be the host of others: the pod of a probe. Its costly handshakes count for the pod, because
   * a pod that reaches its own server through a port of the node would stop the probes of other pods there.
   */
  readonly owner?: string;
  /** A name or an address, with or without the brackets of IPv6. */
  readonly host: string;
  readonly port: number;
}

type Unaddressed<T> = Omit<T, 'host' | 'hostname' | 'port' | 'lookup' | 'createConnection' | 'socketPath' | 'protocol'>;
type DialRequestOptions = DialTarget & {
  readonly secure: boolean;
  /** The hashes of the public keys that the server may have (`publicKeyHash`). Without them its key is not compared. */
  readonly servingKeys?: readonly string[];
} & Unaddressed<TlsRequestOptions>;

/** The error for a server whose certificate has none of the expected keys. */
class ServingKeyError extends Error {
  override readonly name = 'ServingKeyError';
}

/** The error for a server that answers a plain request with an upgrade of the connection. */
export class UnaskedUpgradeError extends Error {
  override readonly name = 'UnaskedUpgradeError';

  constructor(protocol: string) {
    super(`backend tried to switch protocol ${quoteText(protocol)} when "" was requested`);
  }
}

/** The error for an address that must not be dialed for the purpose. */
export class DialRefusedError extends Error {
  override readonly name = 'DialRefusedError';
}

interface DialerOptions {
  /** Returns whether this program listens at the address. */
  readonly isOwn?: (address: string, port: number) => boolean;
  /** The targets that an administrator declared to be on the loopback interface of this host. */
  readonly loopbackTargets?: ReadonlySet<string>;
  /** The time limits of connecting and of the TLS handshake, where they differ from that of the purpose. */
  readonly connectTimeoutsMs?: Partial<Readonly<Record<Purpose, number>>>;
  /** Resolves a name to all its addresses. The resolver of the host is the default, and tests pass another one. */
  readonly resolve?: ResolveName;
  readonly clock?: Clock;
}

/** Has the signature of `dns.lookup` with `all`. */
export type ResolveName = (
  hostname: string,
  options: LookupAllOptions,
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

/** Opens connections by the rules of their purpose. */
export interface Dialer {
  /**
   * Creates an HTTP(S) request. The caller must call `end()`. Throws `DialRefusedError` for an address, and emits it for a
   * name. Throws for a server whose TLS handshakes take too long, unless the purpose is `configured`.
   */
  request(options: DialRequestOptions, onResponse?: (response: IncomingMessage) => void): ClientRequest;
  /** Opens a TCP connection. Throws `DialRefusedError` for an address, and emits it for a name. */
  connect(target: DialTarget & { readonly signal?: AbortSignal }): Socket;
  /** Throws `DialRefusedError` for an address. A name passes, because it is checked when it is resolved. */
  check(target: DialTarget): void;
}

/** The limit of Go's HTTP transport. */
const MAX_RESPONSE_HEADER_BYTES = 10 << 20;

/** Creates the dialer of a process. */
export function createDialer({
  isOwn = () => false,
  loopbackTargets = new Set(),
  connectTimeoutsMs = {},
  resolve = lookup,
  clock = systemClock,
}: DialerOptions = {}): Dialer {
  const costly = new CostlyServers(clock);
  const limitOf = (purpose: Purpose): number => connectTimeoutsMs[purpose] ?? PURPOSES[purpose].connectTimeoutMs;
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
      const { purpose, name, owner, secure, servingKeys, ...requestOptions } = options;
      const target = checked(options);
      const common: RequestOptions = { ...requestOptions, ...target, maxHeaderSize: MAX_RESPONSE_HEADER_BYTES };
      const isFollowed = secure && purpose !== 'configured';
      const key = `${purpose} ${owner ?? name ?? target.host}`;
      const avoided = isFollowed ? costly.refusal(key, target.host) : undefined;
      if (avoided !== undefined) throw avoided;
      const request = secure ? httpsRequest(common, onResponse) : httpRequest(common, onResponse);
      request.once('socket', (socket) => {
        if (isFollowed && socket.connecting && socket instanceof TLSSocket) costly.follow(key, socket);
        limitConnecting(socket, secure ? 'secureConnect' : 'connect', limitOf(purpose));
        if (request.listenerCount('upgrade') === 0) refuseUpgrade(request);
        if (servingKeys !== undefined && socket instanceof TLSSocket) requireKey(socket, servingKeys, options);
      });
      return request;
    },
    connect({ signal, ...target }) {
      const socket = connectTcp({ ...checked(target), ...(signal === undefined ? {} : { signal }) });
      limitConnecting(socket, 'connect', limitOf(target.purpose));
      return socket;
    },
  };
}

/**
 * Reports an upgrade that the caller did not ask for as an error. Node.js would close the connection without any event but
 * `close`, so that the caller would wait for a response for ever.
 */
function refuseUpgrade(request: ClientRequest): void {
  request.once('upgrade', ({ headers }: IncomingMessage, socket: Duplex) => {
    socket.destroy();
    request.emit('error', new UnaskedUpgradeError(headers.upgrade ?? ''));
  });
}

/**
 * Destroys the connection if the certificate of the server has none of the keys. That is before any of the request is sent,
 * because Node.js holds writes back until the event `secureConnect` has passed.
 */
function requireKey(socket: TLSSocket, keys: readonly string[], { host, port, name }: DialTarget): void {
  socket.once('secureConnect', () => {
    const certificate = socket.getPeerX509Certificate();
    if (certificate !== undefined && keys.includes(publicKeyHash(certificate.publicKey))) return;
    const message = `the server at ${host}:${port} has a certificate of another key than ${name ?? 'it'} published in its annotation orchlet.local/serving-keys: remove the annotation if another agent runs there now`;
    socket.destroy(new ServingKeyError(message));
  });
}

function limitConnecting(socket: Socket, connected: 'connect' | 'secureConnect', timeoutMs: number): void {
  if (!socket.connecting) return;
  const idleMs = socket.timeout ?? 0;
  const late = (): void => void socket.destroy(new Error('dial timed out'));
  socket.setTimeout(timeoutMs, late);
  socket.once(connected, () => {
    socket.removeListener('timeout', late);
    socket.setTimeout(idleMs);
  });
}

/** Refuses the name if any of its addresses is refused, because the resolver chooses one of them. */
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

/** Returns the target of a redirect, or `undefined` if the purpose does not follow it or if it is not a URL of HTTP. */
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
