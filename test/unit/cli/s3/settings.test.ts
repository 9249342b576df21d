import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseS3Location, s3Settings } from '../../../../cli/s3/settings.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const NONE = { endpoint: '', region: '' };
const KEYS = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret' };

test('a place is a bucket and a prefix, and nothing else', () => {
  assert.deepEqual(parseS3Location('s3://backups'), { bucket: 'backups', key: '' });
  assert.deepEqual(parseS3Location('s3://backups//a/b/'), { bucket: 'backups', key: 'a/b' });
  for (const wrong of ['s3://', 's3://B', 's3://a@b.example/c', 's3://backups/../other'])
    assert.throws(() => parseS3Location(wrong), /is not of the form s3:\/\/BUCKET\/PREFIX/);
});

for (const [name, bucket, flags, env, url] of [
  ['Amazon has a host for each bucket', 'backups', NONE, {}, 'https://backups.s3.us-east-1.amazonaws.com/'],
  [
    'a bucket with dots is a path',
    'b.example',
    NONE,
    { AWS_REGION: 'eu-west-1' },
    'https://s3.eu-west-1.amazonaws.com/b.example',
  ],
  [
    'a flag comes before variables',
    'b-1',
    { endpoint: 'https://s3.example:9000/', region: 'r' },
    { AWS_ENDPOINT_URL: 'https://x' },
    'https://s3.example:9000/b-1',
  ],
  [
    'a variable names the server',
    'b-1',
    NONE,
    { AWS_ENDPOINT_URL: 'http://127.0.0.1:1/base' },
    'http://127.0.0.1:1/base/b-1',
  ],
] as const) {
  test(`the address of the bucket: ${name}`, async () => {
    assert.equal((await s3Settings(bucket, flags, { ...KEYS, ...env })).url.href, url);
  });
}

test('an invalid endpoint or region is refused', async () => {
  await assert.rejects(s3Settings('b-1', { endpoint: 's3.example', region: '' }, KEYS), /is not of the form https/);
  await assert.rejects(s3Settings('b-1', { endpoint: '', region: 'x/../y' }, KEYS), /is not the name of a region/);
});

test('credentials come from variables, or from a profile of the shared file', async () => {
  const directory = temporaryFolder();
  const file = join(directory, 'credentials');
  writeFileSync(
    file,
    '[default]\naws_access_key_id = a\naws_secret_access_key = b=c\n\n[other]\naws_access_key_id=d\n',
  );
  const read = async (env: Record<string, string>): Promise<unknown> =>
    (await s3Settings('b-1', NONE, env)).credentials;
  assert.deepEqual(await read({ ...KEYS, AWS_SESSION_TOKEN: 't' }), {
    accessKeyId: 'id',
    secretAccessKey: 'secret',
    sessionToken: 't',
  });
  assert.deepEqual(await read({ AWS_SHARED_CREDENTIALS_FILE: file }), { accessKeyId: 'a', secretAccessKey: 'b=c' });
  await assert.rejects(
    read({ AWS_SHARED_CREDENTIALS_FILE: file, AWS_PROFILE: 'other' }),
    /no credentials in the profile \[other\]/,
  );
  await assert.rejects(
    read({ HOME: directory }),
    /cannot be read \(ENOENT\); S3 takes its credentials from AWS_ACCESS_KEY_ID/,
  );
  await assert.rejects(
    read({ ...KEYS, AWS_CA_BUNDLE: `${directory}/missing` }),
    /missing cannot be read \(ENOENT\); AWS_CA_BUNDLE names it$/,
  );
});
