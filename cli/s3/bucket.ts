/**
 * Writes files to a bucket in parts of bounded size, and reads them back. S3 shows an object only after its upload is complete.
 */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { Transform, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Clock } from '../../api/machinery/clock.ts';
import { CommandError } from '../command-line/command.ts';
import { elementOf, elementsOf, S3Error, S3Exchange, type S3Times } from './exchange.ts';
import type { S3Settings } from './settings.ts';

const PART_BYTES = 8 << 20;
/** The maximum number of parts of an upload in S3. */
const MAX_PARTS = 10_000;
/** The maximum number of pages, with a thousand names each. */
const MAX_PAGES = 100;

/** The operations of one bucket. Failures of the server reject with a one-line `CommandError`. */
export interface S3Bucket {
  /** Uploads the file. Its parts are held in memory one at a time. */
  write(key: string, file: string): Promise<void>;
  /** Computes the hash of the object's content. Rejects if it is larger than `limitBytes`. */
  sha256(key: string, limitBytes: number): Promise<string>;
  /** Downloads the object to a new file. Rejects if it is larger than `limitBytes`. */
  read(key: string, file: string, limitBytes: number): Promise<void>;
  /** Lists all keys with this prefix that have no `/` after it. */
  list(prefix: string): Promise<readonly string[]>;
  remove(key: string): Promise<void>;
}

/** Creates the client of a bucket. Opens no connection yet. */
export function s3Bucket(settings: S3Settings, clock: Clock, times?: S3Times): S3Bucket {
  const exchange = new S3Exchange(settings, clock, times);
  const download = (key: string, limitBytes: number, sink: () => Promise<Writable>): Promise<void> =>
    exchange.request({ method: 'GET', key }, async (body) => pipeline(body, boundedBy(limitBytes, key), await sink()));
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
      let hash = createHash('sha256');
      await download(key, limitBytes, () => {
        hash = createHash('sha256');
        const write = (chunk: Buffer, _encoding: string, done: () => void): void => {
          hash.update(chunk);
          done();
        };
        return Promise.resolve(new Writable({ write }));
      });
      return hash.digest('hex');
    },
    async read(key, file, limitBytes) {
      await (await open(file, 'wx', 0o600)).close();
      // Each attempt writes the file from its beginning.
      await download(key, limitBytes, () => Promise.resolve(createWriteStream(file, { flush: true })));
    },
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
  let isCompleting = false;
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
    isCompleting = true;
    const { text } = await exchange.ask({ method: 'POST', key, query: { uploadId }, body });
    // The response begins with code 200 before the server knows the outcome.
    if (text.includes('<Error>'))
      throw new CommandError(
        `the S3 server refused the upload: ${elementOf(text, 'Code')} ${elementOf(text, 'Message')}`,
      );
  } catch (error) {
    // An unknown upload may be complete, if the response to an earlier attempt was lost. Reading the object back decides.
    if (isCompleting && error instanceof S3Error && error.status === 404) return;
    // The server would charge for the parts. The earlier failure is reported.
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
    const query = {
      'list-type': '2',
      delimiter: '/',
      prefix,
      ...(token === '' ? {} : { 'continuation-token': token }),
    };
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
