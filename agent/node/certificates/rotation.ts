/**
 * Keeps one certificate valid: renews it at a random point between 70 and 90 % of its life, tries again with growing pauses,
 * and notifies its user.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { Certificate } from '../../../api/pki/certificate.ts';
import type { CertificateObserver } from './certificate-metrics.ts';
import { readPair, type StoredPair, writePair } from './certificate-store.ts';

interface RotationOptions {
  readonly directory: string;
  /** The name of the certificate: `kubelet-client` or `kubelet-server`. */
  readonly name: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Returns a number from 0 to below 1. */
  readonly random: () => number;
  readonly request: (signal: AbortSignal) => Promise<{ certificatePem: string; keyPem: string }>;
  /** Whether a stored certificate still has the required names and addresses. */
  readonly fits?: (pair: StoredPair) => boolean;
  readonly onRotated: (pair: StoredPair) => void;
  readonly observer?: CertificateObserver;
}

/**
 * Returns the time of the renewal in wall-clock milliseconds. Pure. Signers backdate certificates by some minutes, which is
 * most of the life of a short-lived one. So what counts is the lifetime that remained when the certificate was stored.
 */
export function renewalTime(
  { notBeforeMs, notAfterMs }: Pick<Certificate, 'notBeforeMs' | 'notAfterMs'>,
  random: number,
  storedAtMs: number | undefined = undefined,
): number {
  const isWithin = storedAtMs !== undefined && storedAtMs > notBeforeMs && storedAtMs < notAfterMs;
  const from = isWithin ? storedAtMs : notBeforeMs;
  return from + (notAfterMs - from) * (0.7 + 0.2 * random);
}

const FIRST_RETRY_MS = 2000;
const MAX_RETRY_MS = 5 * 60_000;

/** How often the certificate is read at least, so that a jump of the clock is noticed. */
const CHECK_MS = 60_000;

/** Renews the certificate when that is due, until the signal aborts. */
export async function keepCertificate(options: RotationOptions, signal: AbortSignal): Promise<void> {
  const { clock, logger, name, random } = options;
  const share = random();
  const loop = new WakeableLoop({
    clock,
    backoff: new Backoff({ firstMs: FIRST_RETRY_MS, longestMs: MAX_RETRY_MS, jitter: 1, random }),
    onError: (error) => {
      options.observer?.failed();
      logger.error({ certificate: name, err: errorMessage(error) }, 'Cannot renew a certificate, retrying');
    },
  });
  await loop.run(signal, () => renewWhenDue(options, share, signal));
}

/** Renews the certificate if that is due. Resolves to the milliseconds until the next turn. */
async function renewWhenDue(options: RotationOptions, share: number, signal: AbortSignal): Promise<number> {
  const { clock, logger, directory, name } = options;
  const leftMs = (pair: StoredPair | undefined): number =>
    pair === undefined || options.fits?.(pair) === false
      ? 0
      : renewalTime(pair.leaf, share, pair.storedAtMs) - clock.now();
  const before = await readPair(directory, name);
  options.observer?.inUse(before?.leaf.notAfterMs);
  const untilDueMs = leftMs(before);
  if (untilDueMs > 0) return Math.min(untilDueMs, CHECK_MS);
  const fresh = await options.request(signal);
  await writePair(directory, name, fresh, new Date(clock.now()));
  const stored = await readPair(directory, name);
  if (stored !== undefined) options.onRotated(stored);
  options.observer?.inUse(stored?.leaf.notAfterMs);
  if (before !== undefined) options.observer?.replaced(clock.now() - (before.storedAtMs ?? before.leaf.notBeforeMs));
  const expires = stored === undefined ? undefined : new Date(stored.leaf.notAfterMs).toISOString();
  logger.info({ certificate: name, expires }, 'Renewed a certificate');
  const nextMs = leftMs(stored);
  // Requesting again at once would flood a signer that issues less than was requested (names, lifetime).
  if (nextMs <= 0)
    throw new Error('the signer issued a certificate without the requested addresses, or one that ends too soon');
  return Math.min(nextMs, CHECK_MS);
}
