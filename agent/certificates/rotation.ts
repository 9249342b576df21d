/**
 * Keeps one certificate valid: renews it at a random point between 70 and 90 % of its life, tries again with growing pauses,
 * and tells who uses it.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Certificate } from '../../api/pki/certificate.ts';
import { readPair, type StoredPair, writePair } from './certificate-store.ts';

export interface RotationOptions {
  readonly directory: string;
  /** `kubelet-client`, `kubelet-server`. */
  readonly name: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** 0 to 1. */
  readonly random: () => number;
  readonly request: (signal: AbortSignal) => Promise<{ certificatePem: string; keyPem: string }>;
  /** Whether a stored pair still says what it should (names, addresses). */
  readonly fits?: (pair: StoredPair) => boolean;
  readonly onRotated: (pair: StoredPair) => void;
}

/**
 * When to renew, in wall-clock milliseconds. Pure. Signers let certificates begin some minutes before they make them, which is
 * most of the life of a short one: what counts is what was left when it came.
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
const LONGEST_RETRY_MS = 5 * 60_000;

/** Runs until the signal aborts. */
export async function keepCertificate(options: RotationOptions, signal: AbortSignal): Promise<void> {
  const { clock, logger, directory, name } = options;
  const random = options.random();
  let retryMs = FIRST_RETRY_MS;
  while (!signal.aborted) {
    const pair = await readPair(directory, name);
    const now = clock.now();
    const isGood = pair !== undefined && options.fits?.(pair) !== false;
    const due = isGood ? renewalTime(pair.leaf, random, pair.storedAtMs) : now;
    if (now < due) {
      // Looked at now and then, so that a clock that jumps is noticed.
      await clock.sleep(Math.min(due - now, 60_000), signal).catch(() => undefined);
      continue;
    }
    try {
      const fresh = await options.request(signal);
      await writePair(directory, name, fresh, new Date(clock.now()));
      const stored = await readPair(directory, name);
      if (stored !== undefined) options.onRotated(stored);
      logger.info(
        {
          certificate: name,
          expires: stored === undefined ? undefined : new Date(stored.leaf.notAfterMs).toISOString(),
        },
        'renewed a certificate',
      );
      const fits = stored !== undefined && options.fits?.(stored) !== false;
      if (fits && renewalTime(stored.leaf, random, stored.storedAtMs) > clock.now()) {
        retryMs = FIRST_RETRY_MS;
        continue;
      }
      // The signer gave less than was asked for (names, life): asking again at once would flood it.
      logger.warn({ certificate: name }, 'the new certificate is not what was asked for; asking again later');
    } catch (error) {
      if (signal.aborted) return;
      logger.error(
        { certificate: name, err: error instanceof Error ? error.message : error },
        'a certificate could not be renewed; trying again',
      );
    }
    await clock.sleep(retryMs * (1 + options.random()), signal).catch(() => undefined);
    retryMs = Math.min(retryMs * 2, LONGEST_RETRY_MS);
  }
}
