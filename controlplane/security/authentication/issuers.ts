/**
 * Authenticates tokens of the configured OpenID issuers. A changed configuration replaces the whole set, and only after the
 * keys of every new issuer are fetched: an error in the file must not lock out users of the previous issuers.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Logger } from '../../../api/component/logger.ts';
import type { JwtSettings } from './authentication-config.ts';
import { oidcAuthenticator, type OidcAuthenticator } from './oidc.ts';
import { unionTokens } from './union.ts';
import type { TokenAuthenticator } from './authentication.ts';
import type { WebhookClient } from '../webhooks/webhook-client.ts';

/** What every issuer is built with. */
interface IssuersOptions {
  readonly client: WebhookClient;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called for each key of an issuer that cannot be read. */
  readonly onUnreadableKey?: (() => void) | undefined;
}

const READY_WITHIN_MS = 60_000;
const ASK_AGAIN_MS = 10_000;

/** A token authenticator whose issuers can be replaced while it is in use. */
export class Issuers implements TokenAuthenticator {
  readonly #options: IssuersOptions;
  #current: TokenAuthenticator;

  constructor(settings: readonly JwtSettings[], options: IssuersOptions) {
    this.#options = options;
    this.#current = unionTokens(this.#make(settings));
  }

  authenticateToken(token: string, audiences: readonly string[]): ReturnType<TokenAuthenticator['authenticateToken']> {
    return this.#current.authenticateToken(token, audiences);
  }

  /** Rejects, without any change, if an issuer does not return its keys within a minute. */
  async replace(settings: readonly JwtSettings[], signal: AbortSignal): Promise<void> {
    const next = this.#make(settings);
    await Promise.all(next.map((issuer) => this.#untilReady(issuer, signal)));
    this.#current = unionTokens(next);
  }

  #make(settings: readonly JwtSettings[]): OidcAuthenticator[] {
    return settings.map((one) => oidcAuthenticator({ ...one, ...this.#options }));
  }

  async #untilReady(issuer: OidcAuthenticator, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const untilMs = clock.monotonic() + READY_WITHIN_MS;
    while (!(await issuer.ready())) {
      signal.throwIfAborted();
      if (clock.monotonic() >= untilMs) throw new Error(`the keys of the issuer ${issuer.issuerUrl} cannot be fetched`);
      await clock.sleep(ASK_AGAIN_MS, signal);
    }
  }
}
