/** Tests files in a bucket with a server that verifies signatures, and with servers that fail, stall or send wrong data. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { s3Bucket, type S3Bucket } from '../../../../cli/s3/bucket.ts';
import { FAKE_S3_KEYS, FakeS3 } from '../../../fakes/fake-s3.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

/** The limits for servers that stall. */
const TIMES = { idleMs: 300, answerMs: 1500, retryDelaysMs: [1, 1] };
/** The limits for servers that answer, however busy the host is. */
const PATIENT = { idleMs: 60_000, answerMs: 60_000, retryDelaysMs: [1, 1] };
const LARGE_BYTES = 20 << 20;

let server: FakeS3;
let directory: string;
const bucketOf = (secret: string = FAKE_S3_KEYS.secret, times = TIMES): S3Bucket =>
  s3Bucket(
    {
      url: new URL(`${server.endpoint}/backups`),
      region: FAKE_S3_KEYS.region,
      credentials: { accessKeyId: FAKE_S3_KEYS.id, secretAccessKey: secret },
    },
    systemClock,
    times,
  );
const patientBucket = (): S3Bucket => bucketOf(FAKE_S3_KEYS.secret, PATIENT);
const fileOf = (content: Buffer): string => {
  const file = join(directory, 'file');
  writeFileSync(file, content);
  return file;
};
/** Asserts that the work fails with the expected error, and in the time that `TIMES` allows. */
async function promptly(work: Promise<unknown>, expected: RegExp): Promise<void> {
  const start = performance.now();
  await assert.rejects(work, (error: Error) => {
    assert.match(error.message, expected);
    assert.doesNotMatch(error.message, /\n/);
    assert.ok(!error.message.includes(FAKE_S3_KEYS.secret), 'the secret stays secret');
    return true;
  });
  assert.ok(performance.now() - start < 20_000);
}

beforeEach(async () => {
  server = await FakeS3.start();
  directory = temporaryFolder();
});
afterEach(async () => {
  await server.stop();
});

describe('a bucket', () => {
  it('stores a small file with one request, under a name that needs encoding', async () => {
    await patientBucket().write("a b/ü+'(1).tgz", fileOf(Buffer.from('small')));
    assert.equal(server.objects.get("/backups/a b/ü+'(1).tgz")?.toString(), 'small');
    assert.equal(server.seen.length, 1);
  });

  it('stores a large file in parts, and returns it unchanged', async () => {
    const content = randomBytes(LARGE_BYTES);
    await patientBucket().write('large', fileOf(content));
    assert.deepEqual(
      server.seen.map((line) => line.replace(/uploadId=[^&]*/, 'uploadId')),
      [
        'POST /backups/large?uploads=',
        ...[1, 2, 3].map((part) => `PUT /backups/large?partNumber=${part}&uploadId`),
        'POST /backups/large?uploadId',
      ],
    );
    const back = join(directory, 'back');
    await patientBucket().read('large', back, LARGE_BYTES);
    assert.ok(readFileSync(back).equals(content));
  });

  it('lists all pages of a prefix, and removes a file', async () => {
    for (const key of ['p/1', 'p/2&3', 'p/4', 'p/5', 'p/6', 'q/1'])
      server.objects.set(`/backups/${key}`, Buffer.from(''));
    assert.deepEqual(await patientBucket().list('p/'), ['p/1', 'p/2&3', 'p/4', 'p/5', 'p/6']);
    await patientBucket().remove('p/4');
    assert.equal(server.objects.has('/backups/p/4'), false);
  });
});

describe('of a server that', () => {
  const xml = (response: ServerResponse, status: number, text: string): true => {
    response.writeHead(status).end(text);
    return true;
  };

  it('refuses the signature, the answer is reported at once', async () => {
    await promptly(
      bucketOf('wrong').list(''),
      /^S3 GET http:\/\/127\.0\.0\.1:\d+\/backups answered 403 SignatureDoesNotMatch: no & no$/,
    );
    assert.equal(server.seen.length, 1);
  });

  it('fails in passing, the request is tried again', async () => {
    let left = 2;
    server.fault = (_request, response) => left-- > 0 && xml(response, 503, '<Error><Code>SlowDown</Code></Error>');
    await bucketOf().write('key', fileOf(Buffer.from('x')));
    assert.equal(server.objects.get('/backups/key')?.toString(), 'x');
  });

  it('fails transiently while an object is read, it is read again', async () => {
    server.objects.set('/backups/key', Buffer.from('content'));
    let left = 2;
    server.fault = (_request, response) => {
      left -= 1;
      if (left === 1) return xml(response, 503, '<Error><Code>SlowDown</Code></Error>');
      if (left < 0) return false;
      response.writeHead(200, { 'content-length': 7 }).write('con');
      return response.socket?.end() !== undefined;
    };
    await bucketOf().read('key', join(directory, 'back'), 100);
    assert.equal(readFileSync(join(directory, 'back'), 'utf8'), 'content');
  });

  it('loses the answer to the end of an upload, the upload is complete', async () => {
    const content = Buffer.alloc(9 << 20, 'x');
    let isLost = false;
    server.fault = (request) => {
      if (isLost || request.method !== 'POST' || request.url?.includes('uploadId') !== true) return false;
      isLost = true;
      server.objects.set('/backups/large', content);
      server.uploads.clear();
      return request.socket.destroy() !== undefined;
    };
    await bucketOf().write('large', fileOf(content));
    assert.equal(isLost, true);
    assert.equal(server.objects.get('/backups/large')?.equals(content), true);
  });

  it('keeps failing, the last answer is reported', async () => {
    server.fault = (_request, response) => xml(response, 500, '<Error><Code>InternalError</Code></Error>');
    await promptly(bucketOf().list(''), /answered 500 InternalError/);
    assert.equal(server.seen.length, 3);
  });

  it('closes connections, that is reported', async () => {
    server.fault = (request) => request.socket.destroy() !== undefined;
    await promptly(bucketOf().list(''), /^S3 GET \S+ failed: socket hang up/);
  });

  it('does not answer, the request is given up', async () => {
    server.fault = () => true;
    await promptly(bucketOf().list(''), /failed: nothing came for 0\.3 s/);
  });

  it('stalls in the middle of an object, the download is given up', async () => {
    server.fault = (_request, response) =>
      response.writeHead(200, { 'content-length': 100 }).write('begin') !== undefined;
    await promptly(bucketOf().read('key', join(directory, 'back'), 100), /aborted|nothing came/);
  });

  it('answers without an end, the answer is given up', async () => {
    server.fault = (_request, response) => {
      response.writeHead(200);
      const more = (): void =>
        void (response.destroyed || response.write(Buffer.alloc(65_536, 'x'), () => setImmediate(more)));
      more();
      return true;
    };
    await promptly(bucketOf().list(''), /more than 1048576 bytes/);
    await promptly(bucketOf().sha256('key', 100_000), /more than 100000 bytes/);
  });

  it('sends a byte from time to time, the request fails', async () => {
    server.fault = (_request, response) => {
      response.writeHead(200);
      const timer = setInterval(() => response.write('x'), 50);
      response.on('close', () => clearInterval(timer));
      return true;
    };
    await promptly(bucketOf().list(''), /no end within 1\.5 s/);
    const once = (): S3Bucket => bucketOf(FAKE_S3_KEYS.secret, { ...TIMES, retryDelaysMs: [] });
    await promptly(once().sha256('key', 100_000), /no end within 1\.5 s/);
    await promptly(once().read('key', join(directory, 'back'), 100_000), /no end within 1\.5 s/);
  });

  it('redirects, the redirect is not followed', async () => {
    server.fault = (_request, response) => {
      response.writeHead(307, { location: 'http://169.254.169.254/', 'x-amz-bucket-region': 'eu-west-1' }).end();
      return true;
    };
    await promptly(bucketOf().list(''), /answered 307 \(the bucket is in the region eu-west-1\)/);
    assert.equal(server.seen.length, 1);
  });

  it('refuses a part, the upload is aborted', async () => {
    server.fault = (request, response) =>
      request.url?.includes('partNumber=2') === true &&
      xml(response, 400, '<Error><Code>EntityTooSmall</Code></Error>');
    await promptly(bucketOf().write('large', fileOf(Buffer.alloc(LARGE_BYTES))), /answered 400 EntityTooSmall/);
    assert.deepEqual([server.uploads.size, server.objects.size], [0, 0]);
  });

  it('responds with 200 and then with an error, the upload fails', async () => {
    server.fault = (_request, response, body) =>
      body.includes('CompleteMultipartUpload') && xml(response, 200, '<Error><Code>InternalError</Code></Error>');
    await promptly(bucketOf().write('large', fileOf(Buffer.alloc(LARGE_BYTES))), /refused the upload: InternalError/);
  });

  it('lists without an end, the list is given up', async () => {
    server.fault = (_request, response) =>
      xml(response, 200, '<R><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken></R>');
    await promptly(bucketOf().list('p/'), /lists more than 100 pages/);
  });
});
