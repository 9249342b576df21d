/**
 * Reads a file of CA certificates, and reads it again when it changes. If the new content is invalid, the previous certificates
 * stay in use.
 */
import { statSync } from 'node:fs';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { parseCertificates, type Certificate } from '../../../api/pki/certificate.ts';
import { readPlainFile } from './plain-file.ts';

const CHECK_EVERY_MS = 5000;

/** The CA certificates that are in use now. */
export interface CaBundle {
  /** A new object whenever the content of the file changed. */
  certificates(): readonly Certificate[];
  pem(): string;
}

/** Creates a bundle that never changes. Throws for an invalid certificate. A text without certificates is an empty bundle. */
export function fixedCaBundle(pem: string): CaBundle {
  const certificates = parseCertificates(pem);
  return { certificates: () => certificates, pem: () => pem };
}

/** Follows a file of CAs. Throws if the file is invalid at the start. */
export function fileCaBundle(path: string, clock: Clock, logger: Logger): CaBundle {
  const read = (): { pem: string; certificates: readonly Certificate[] } => {
    const pem = readPlainFile(path);
    const certificates = parseCertificates(pem);
    if (certificates.length === 0) throw new Error(`${path} holds no certificate`);
    return { pem, certificates };
  };
  const mark = (): string => {
    const { mtimeMs, ino, size } = statSync(path);
    return `${mtimeMs}/${ino}/${size}`;
  };
  let lastMark = mark();
  let current = read();
  let nextCheckMs = clock.monotonic() + CHECK_EVERY_MS;
  const reload = (): void => {
    if (clock.monotonic() < nextCheckMs) return;
    nextCheckMs = clock.monotonic() + CHECK_EVERY_MS;
    try {
      const now = mark();
      if (now === lastMark) return;
      const next = read();
      lastMark = now;
      if (next.pem !== current.pem) {
        current = next;
        logger.info({ path, certificates: next.certificates.length }, 'Read the CA bundle again');
      }
    } catch (error) {
      logger.warn({ err: error, path }, 'The CA bundle cannot be read; the old one stays in use');
    }
  };
  return {
    certificates: () => (reload(), current.certificates),
    pem: () => (reload(), current.pem),
  };
}
