/**
 * Gets the service-account tokens of pods. A token is requested once, cached in memory and renewed after four fifths of its
 * lifetime, at the latest after a day. A valid token is still used while the API server is not available.
 */
import type { Client } from '../../api/client/client.ts';
import { type Clock, formatTime } from '../../api/machinery/clock.ts';
import { serviceAccounts } from '../../api/client/resources.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { Pod } from '../base/model/pod.ts';
import type { TokenRequestSpec } from './payload.ts';

interface CachedToken {
  readonly token: string;
  readonly issuedAtMs: number;
  readonly expiresAtMs: number;
  readonly podUid: string;
}

const DAY_MS = 24 * 60 * 60 * 1000;

/** Owns the tokens by pod and request. Methods reject if there is no valid token and the API server does not issue one. */
export class TokenManager {
  readonly #client: Client | undefined;
  readonly #clock: Clock;
  readonly #tokens = new Map<string, CachedToken>();

  constructor(options: { readonly client: Client | undefined; readonly clock: Clock }) {
    this.#client = options.client;
    this.#clock = options.clock;
  }

  /** Returns a token that is valid. Requests it from the API server if there is none or it must be renewed. */
  async token(pod: Pod, spec: TokenRequestSpec): Promise<string> {
    return (await this.#valid(pod, spec)).token;
  }

  /** Returns the status of a TokenRequest, for callers that handle the expiry themselves. */
  async status(pod: Pod, spec: TokenRequestSpec): Promise<{ token: string; expirationTimestamp: string }> {
    const { token, expiresAtMs } = await this.#valid(pod, spec);
    return { token, expirationTimestamp: formatTime(expiresAtMs) };
  }

  async #valid(pod: Pod, spec: TokenRequestSpec): Promise<CachedToken> {
    const account = pod.spec.serviceAccountName ?? 'default';
    const key = JSON.stringify([
      pod.metadata.namespace,
      account,
      pod.metadata.uid,
      spec.audience ?? '',
      spec.expirationSeconds,
    ]);
    const cached = this.#tokens.get(key);
    const now = this.#clock.now();
    if (cached !== undefined && now < renewAt(cached)) return cached;
    if (this.#client === undefined) throw new Error('service account tokens need an API server');
    try {
      const fresh = await this.#request(this.#client, pod, account, spec);
      this.#tokens.set(key, fresh);
      return fresh;
    } catch (error) {
      if (cached !== undefined && now < cached.expiresAtMs) return cached;
      throw new Error(`failed to fetch token: ${errorMessage(error)}`, {
        cause: error,
      });
    }
  }

  async #request(client: Client, pod: Pod, account: string, spec: TokenRequestSpec): Promise<CachedToken> {
    const request = {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      metadata: {},
      spec: {
        audiences: spec.audience === undefined ? [] : [spec.audience],
        expirationSeconds: spec.expirationSeconds,
        boundObjectRef: { apiVersion: 'v1', kind: 'Pod', name: pod.metadata.name, uid: pod.metadata.uid },
      },
    } satisfies KubeObject;
    const answer = await client.create(serviceAccounts, pod.metadata.namespace, request, {
      name: account,
      subresource: 'token',
    });
    const status = answer['status'] as { token: string; expirationTimestamp: string };
    return {
      token: status.token,
      issuedAtMs: this.#clock.now(),
      expiresAtMs: Date.parse(status.expirationTimestamp),
      podUid: pod.metadata.uid,
    };
  }

  forgetPod(podUid: string): void {
    for (const [key, cached] of this.#tokens) if (cached.podUid === podUid) this.#tokens.delete(key);
  }
}

function renewAt(cached: CachedToken): number {
  return Math.min(cached.issuedAtMs + 0.8 * (cached.expiresAtMs - cached.issuedAtMs), cached.issuedAtMs + DAY_MS);
}
