/**
 * Gets registry credentials from plugins, which are programs in `--image-credential-provider-bin-dir`. For an image, a plugin
 * gets a CredentialProviderRequest and returns credentials, with the duration and scope of their caching. If a plugin fails,
 * the pull continues without its credentials.
 */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { parseDuration } from '../../../api/component/duration.ts';
import type { Client } from '../../../api/client/client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { ServiceAccount } from '../../../api/kinds/kinds.ts';
import { serviceAccounts } from '../../../api/client/resources.ts';
import { ConfigurationError } from '../../base/model/configuration-error.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { CredentialProvider, TokenAttributes } from './credential-provider-config.ts';
import { runCredentialPlugin } from './credential-plugin.ts';
import { matchesImage } from './image-match.ts';
import { parseImageReference } from '../../../api/kinds/image-reference.ts';
import { credentialHash, type CredentialSource, lastPatternFirst, type PullCredential } from './pull-credentials.ts';

interface CredentialProvidersOptions {
  readonly providers: readonly CredentialProvider[];
  readonly binDirectory: string;
  readonly client: Client | undefined;
  readonly token: (pod: Pod, audience: string) => Promise<string>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called for each run of a plugin. */
  readonly observe?: (plugin: string, run: { readonly tookMs: number; readonly isFailed: boolean }) => void;
}

interface CachedEntries {
  readonly entries: readonly Entry[];
  readonly expiresAtMs: number;
}

interface Entry {
  readonly pattern: string;
  readonly username: string;
  readonly password: string;
}

/** An entry of a plugin, with the service account whose pods may use it. */
interface FoundEntry {
  readonly entry: Entry;
  readonly source: CredentialSource | undefined;
}

/** The identity for which credentials are requested: none, or a service account with its token. */
interface Identity {
  readonly token: string | undefined;
  readonly annotations: Readonly<Record<string, string>> | undefined;
  /** The part of the cache key that separates credentials of different service accounts and tokens. */
  readonly key: string;
  /** The service account of the pod. Without it every pod of the node may use the credentials. */
  readonly source: CredentialSource | undefined;
}

const NO_ACCOUNT: Identity = { token: undefined, annotations: undefined, key: '', source: undefined };

/** Owns the cached credentials. Calls of one plugin with the same request are shared. */
export class CredentialProviders {
  readonly #options: CredentialProvidersOptions;
  readonly #cached = new Map<string, CachedEntries>();
  readonly #running = new Map<string, Promise<readonly Entry[]>>();

  constructor(options: CredentialProvidersOptions) {
    this.#options = options;
  }

  /** Throws `ConfigurationError` if a plugin is missing or not executable. */
  async check(): Promise<void> {
    for (const { name } of this.#options.providers) {
      const program = join(this.#options.binDirectory, name);
      await access(program, constants.X_OK).catch((error: unknown) => {
        throw new ConfigurationError(`plugin binary executable ${program} did not exist or cannot be run`, {
          cause: error,
        });
      });
    }
  }

  /**
   * Returns the plugins' credentials for the image, in the order of the attempts. A plugin that fails is logged and skipped.
   */
  async credentials(image: string, pod: Pod): Promise<readonly PullCredential[]> {
    const { registry, repository } = parseImageReference(image);
    const target = `${registry}/${repository}`;
    const found: FoundEntry[] = [];
    for (const provider of this.#options.providers) {
      if (!provider.matchImages.some((pattern) => matchesImage(pattern, target))) continue;
      try {
        const identity = await this.#identity(provider.tokenAttributes, pod);
        if (identity === undefined) continue;
        const entries = await this.#entries(provider, target, identity);
        for (const entry of entries)
          if (matchesImage(entry.pattern, target)) found.push({ entry, source: identity.source });
      } catch (error) {
        this.#options.logger.error(
          { provider: provider.name, image: target, err: error },
          'A credential provider plugin failed',
        );
      }
    }
    return found
      .toSorted((a, b) => lastPatternFirst(a.entry.pattern, b.entry.pattern))
      .map(({ entry: { username, password }, source }) => ({
        auth: { username, password, serverAddress: registry },
        source,
        hash: credentialHash({ username, password }),
      }));
  }

  /** Returns the cached entries, or those of a run of the plugin. Joins a run for the same image and identity. */
  async #entries(provider: CredentialProvider, target: string, identity: Identity): Promise<readonly Entry[]> {
    const { clock, binDirectory, observe } = this.#options;
    const keyOf = (scope: string): string => JSON.stringify([provider.name, scope, identity.key]);
    this.#dropExpired();
    const registry = target.split('/')[0] ?? '';
    for (const scope of [target, registry, 'global']) {
      const cached = this.#cached.get(keyOf(scope));
      if (cached !== undefined) return cached.entries;
    }
    const running = this.#running.get(keyOf(target));
    if (running !== undefined) return running;
    const run = async (): Promise<readonly Entry[]> => {
      const response = await runCredentialPlugin({
        provider,
        binDirectory,
        image: target,
        clock,
        observe,
        ...identity,
      });
      const entries = Object.entries(response.auth).map(([pattern, auth]) => ({ pattern, ...auth }));
      const durationMs =
        response.cacheDuration === undefined ? provider.defaultCacheMs : (parseDuration(response.cacheDuration) ?? 0);
      const scope = { Image: target, Registry: registry, Global: 'global' }[response.cacheKeyType];
      if (durationMs > 0) this.#cached.set(keyOf(scope), { entries, expiresAtMs: clock.now() + durationMs });
      return entries;
    };
    const started = run().finally(() => this.#running.delete(keyOf(target)));
    this.#running.set(keyOf(target), started);
    return started;
  }

  #dropExpired(): void {
    const now = this.#options.clock.now();
    for (const [key, { expiresAtMs }] of this.#cached) if (expiresAtMs <= now) this.#cached.delete(key);
  }

  /**
   * Returns the identity for which the plugin is run; `undefined` if the plugin does not serve this pod. Throws if the service
   * account or its token cannot be read.
   */
  async #identity(attributes: TokenAttributes | undefined, pod: Pod): Promise<Identity | undefined> {
    if (attributes === undefined) return NO_ACCOUNT;
    const { namespace } = pod.metadata;
    const name = pod.spec.serviceAccountName ?? '';
    // Static pods have no service account.
    if (name === '') return attributes.requiresServiceAccount ? undefined : NO_ACCOUNT;
    if (this.#options.client === undefined) throw new Error('credentials of a service account need an API server');
    const account = (await this.#options.client.get(serviceAccounts, namespace, name)) as ServiceAccount;
    const annotationsOfAccount = account.metadata.annotations ?? {};
    // The required annotations select the plugin.
    if (attributes.requiredAnnotations.some((key) => annotationsOfAccount[key] === undefined)) return undefined;
    const annotations = Object.fromEntries(
      [...attributes.requiredAnnotations, ...attributes.optionalAnnotations]
        .toSorted()
        .flatMap((key) => (annotationsOfAccount[key] === undefined ? [] : [[key, annotationsOfAccount[key]]])),
    );
    const token = await this.#options.token(pod, attributes.audience);
    const parts = [namespace, name, account.metadata.uid, annotations];
    if (attributes.cacheType === 'Token') parts.push(createHash('sha256').update(token).digest('hex'));
    const source = { kind: 'serviceAccount', uid: account.metadata.uid ?? '', namespace, name } as const;
    return { token, annotations, key: JSON.stringify(parts), source };
  }
}
