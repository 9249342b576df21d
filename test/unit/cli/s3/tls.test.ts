/** S3 servers with TLS: a certificate of a private CA is trusted where `AWS_CA_BUNDLE` names it, and otherwise refused. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createServer, type Server } from 'node:tls';
import { after, before, describe, it } from 'node:test';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { s3Bucket, type S3Bucket } from '../../../../cli/s3/bucket.ts';
import { s3Settings } from '../../../../cli/s3/settings.ts';
import { FAKE_S3_KEYS, FakeS3 } from '../../../fakes/fake-s3.ts';
import { selfSigned } from '../../../fakes/fake-server.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const TIMES = { idleMs: 5000, answerMs: 5000, retryDelaysMs: [1] };

describe('an S3 server with TLS', () => {
  let server: FakeS3;
  let tls: Server;
  let directory: string;
  let bundle: string;

  before(async () => {
    directory = temporaryFolder();
    bundle = join(directory, 'ca.crt');
    server = await FakeS3.start();
    const behind = Number(new URL(server.endpoint).port);
    const { cert, key } = await selfSigned();
    writeFileSync(bundle, cert);
    tls = createServer({ cert, key }, (socket) => {
      const plain = connect(behind, '127.0.0.1');
      socket.on('error', () => plain.destroy()).pipe(plain);
      plain.on('error', () => socket.destroy()).pipe(socket);
    });
    tls.listen(0, '127.0.0.1');
    await once(tls, 'listening');
  });
  after(async () => {
    tls.close();
    await server.stop();
  });

  const bucketAt = async (host: string, environment: Readonly<Record<string, string>>): Promise<S3Bucket> => {
    const endpoint = `https://${host}:${(tls.address() as AddressInfo).port}`;
    const keys = { AWS_ACCESS_KEY_ID: FAKE_S3_KEYS.id, AWS_SECRET_ACCESS_KEY: FAKE_S3_KEYS.secret };
    const flags = { endpoint, region: FAKE_S3_KEYS.region };
    return s3Bucket(await s3Settings('backups', flags, { ...keys, ...environment }), systemClock, TIMES);
  };
  const file = (name: string): string => join(directory, name);

  it('takes a file and gives it back, where its CA is in the bundle', async () => {
    const bucket = await bucketAt('localhost', { AWS_CA_BUNDLE: bundle });
    writeFileSync(file('given'), 'content');
    await bucket.write('given', file('given'));
    await bucket.read('given', file('back'), 100);
    assert.equal(readFileSync(file('back'), 'utf8'), 'content');
  });

  it('gets nothing where its CA is unknown', async () => {
    const bucket = await bucketAt('localhost', {});
    const before = server.seen.length;
    await assert.rejects(bucket.list(''), /self-signed certificate/);
    assert.equal(server.seen.length, before);
  });

  it('gets nothing where its certificate is for another name', async () => {
    const bucket = await bucketAt('127.0.0.1', { AWS_CA_BUNDLE: bundle });
    const before = server.seen.length;
    await assert.rejects(bucket.list(''), /does not match certificate/);
    assert.equal(server.seen.length, before);
  });
});
