/** Reads the whole body of a request within a size limit, for both protocols. */
import type { Readable } from 'node:stream';
import { newRequestEntityTooLarge } from '../../api/meta/status-error.ts';

/**
 * Rejects with a 413 if the body is longer than `limit` bytes, and with another error if the client is disconnected before the
 * end of the body. `count` receives the size of each part. It listens to the stream, because an iterator costs several times as
 * much as a small body.
 */
export function readWhole(body: Readable, limit: number, count?: (bytes: number) => void): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    // Emptied at the end, because the stream outlives the body.
    let chunks: Buffer[] = [];
    let size = 0;
    const onData = (chunk: Buffer): void => {
      size += chunk.length;
      chunks.push(chunk);
      if (size <= limit) return count?.(chunk.length);
      body.off('data', onData).off('close', onClose).pause();
      chunks = [];
      reject(newRequestEntityTooLarge(`Request entity too large: limit is ${limit}`));
    };
    const onEnd = (): void => {
      body.off('data', onData).off('close', onClose);
      const [first] = chunks;
      resolve(chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks, size));
      chunks = [];
    };
    const onClose = (): void => {
      chunks = [];
      reject(new Error('the client was disconnected before the end of the body'));
    };
    if (body.destroyed) onClose();
    else body.on('data', onData).once('end', onEnd).once('close', onClose);
  });
}
