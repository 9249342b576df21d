/**
 * Files in a bucket: written in parts of bounded size, and read back. A file has its name once all of it has come: S3 shows no
 * object before its upload is complete.
 */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { Transform, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Clock } from '../../api/machinery/clock.ts';
import { CommandError } from '../command.ts';
import { elementOf, elementsOf, S3Exchange, type S3Times } from './exchange.ts';
import type { S3Settings } from './settings.ts';

const PART_BYTES = 8 << 20;
/** S3's own bound. */
const MAX_PARTS = 10_000;
/** Of a thousand names each. */
const MAX_PAGES = 100;

export interface S3Bucket {
  /** The parts are held in memory one at a time. */
  write(key: string, file: string): Promise<void>;
  /** The hash of a file as the server gives it back. Rejects beyond `limitBytes`. */
  sha256(key: string, limitBytes: number): Promise<string>;
  /** Into a new file. Rejects beyond `limitBytes`. */
  read(key: string, file: string, limitBytes: number): Promise<void>;
  /** All keys that begin so. */
  list(prefix: string): Promise<readonly string[]>;
  remove(key: string): Promise<void>;
}

export function s3Bucket(settings: S3Settings, clock: Clock, times?: S3Times): S3Bucket {
  const exchange = new S3Exchange(settings, clock, times);
  const download = async (key: string, limitBytes: number, sink: Writable): Promise<void> => {
    const response = await exchange.open({ method: 'GET', key });
    await pipeline(response, boundedBy(limitBytes, key), sink);
  };
  return {
    async write(key, file) {
      const handle = await open(file);
      try {
        const { size } = await handle.stat();
        if (size <= PART_BYTES) await exchange.ask({ method: 'PUT', key, body: await slice(handle, 0, size) });
        else await writeInParts(exchange, key, handle, size);
      } finally {
        await handle.close();
      }
    },
    async sha256(key, limitBytes) {
      const hash = createHash('sha256');
      const sink = new Writable({
        write(chunk: Buffer, _encoding, done) {
          hash.update(chunk);
          done();
        },
      });
      await download(key, limitBytes, sink);
      return hash.digest('hex');
    },
    read: (key, file, limitBytes) =>
      download(key, limitBytes, createWriteStream(file, { flags: 'wx', mode: 0o600, flush: true })),
    list: (prefix) => list(exchange, prefix),
    async remove(key) {
      await exchange.ask({ method: 'DELETE', key });
    },
  };
}

async function writeInParts(exchange: S3Exchange, key: string, handle: FileHandle, size: number): Promise<void> {
  const partBytes = Math.max(PART_BYTES, Math.ceil(size / MAX_PARTS));
  const created = await exchange.ask({ method: 'POST', key, query: { uploads: '' } });
  const uploadId = elementOf(created.text, 'UploadId');
  if (uploadId === '') throw new CommandError('the S3 server began an upload without an UploadId');
  try {
    const tags: string[] = [];
    for (let start = 0; start < size; start += partBytes) {
      const body = await slice(handle, start, Math.min(partBytes, size - start));
      const query = { partNumber: String(tags.length + 1), uploadId };
      const { headers } = await exchange.ask({ method: 'PUT', key, query, body });
      tags.push(headers.etag ?? '');
    }
    const parts = tags.map(
      (tag, at) => `<Part><PartNumber>${at + 1}</PartNumber><ETag>${escapeXml(tag)}</ETag></Part>`,
    );
    const body = Buffer.from(`<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`);
    const { text } = await exchange.ask({ method: 'POST', key, query: { uploadId }, body });
    // The answer begins with 200 before the server knows the outcome.
    if (text.includes('<Error>'))
      throw new CommandError(
        `the S3 server refused the upload: ${elementOf(text, 'Code')} ${elementOf(text, 'Message')}`,
      );
  } catch (error) {
    // The parts would be charged for otherwise. The failure that led here is the one to report.
    await exchange.ask({ method: 'DELETE', key, query: { uploadId } }).catch(() => undefined);
    throw error;
  }
}

async function slice(handle: FileHandle, start: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await handle.read(buffer, 0, length, start);
  if (bytesRead !== length) throw new Error('the file changed while it was uploaded');
  return buffer;
}

async function list(exchange: S3Exchange, prefix: string): Promise<readonly string[]> {
  const keys: string[] = [];
  let token = '';
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const query = { 'list-type': '2', prefix, ...(token === '' ? {} : { 'continuation-token': token }) };
    const { text } = await exchange.ask({ method: 'GET', key: '', query });
    keys.push(...elementsOf(text, 'Key').filter((key) => key.startsWith(prefix)));
    token = elementOf(text, 'NextContinuationToken');
    if (elementOf(text, 'IsTruncated') !== 'true' || token === '') return keys;
  }
  throw new CommandError(`the S3 server lists more than ${MAX_PAGES} pages below ${prefix}`);
}

function boundedBy(limitBytes: number, key: string): Transform {
  let sizeBytes = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      sizeBytes += chunk.length;
      if (sizeBytes > limitBytes) done(new CommandError(`${key} has more than ${limitBytes} bytes`));
      else done(null, chunk);
    },
  });
}

const escapeXml = (text: string): string =>
  text.replaceAll(/[<>&]/g, (character) => ({ '<': '&lt;', '>': '&gt;', '&': '&amp;' })[character] ?? '');
