/**
 * Reads a client certificate and its key from files, and reads them again when they change. If the new files do not fit each
 * other, for example while they are replaced one after the other, the previous pair stays in use.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { readPlainFile } from './plain-file.ts';

const CHECK_EVERY_MS = 5000;

interface KeyPairPem {
  readonly cert: string;
  readonly key: string;
}

/**
 * Follows the files of a certificate and its key, and returns the function that reads the current pair. Throws if the files are
 * invalid at the start.
 */
export function followPair(certificateFile: string, keyFile: string, clock: Clock, logger: Logger): () => KeyPairPem {
  const read = (): KeyPairPem => {
    const cert = readPlainFile(certificateFile);
    const key = readPlainFile(keyFile);
    if (!new X509Certificate(cert).checkPrivateKey(createPrivateKey(key)))
      throw new Error(`${keyFile} is not the key of the certificate ${certificateFile}`);
    return { cert, key };
  };
  let current = read();
  let nextCheckMs = clock.monotonic() + CHECK_EVERY_MS;
  return () => {
    if (clock.monotonic() < nextCheckMs) return current;
    nextCheckMs = clock.monotonic() + CHECK_EVERY_MS;
    try {
      const next = read();
      if (next.cert !== current.cert) logger.info({ path: certificateFile }, 'Reloaded the client certificate');
      current = next;
    } catch (error) {
      logger.warn(
        { err: error, path: certificateFile },
        'The client certificate cannot be read; the old one stays in use',
      );
    }
    return current;
  };
}
