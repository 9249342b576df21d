/**
 * Collects the settings of backups in S3: from `s3://BUCKET/PREFIX` and the flags, then from the environment variables and the
 * credentials file of other S3 tools.
 */
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { trimEnd } from '../../api/component/trim.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { UsageError } from '../../api/component/flags.ts';
import { CommandError } from '../command-line/command.ts';
import type { S3Credentials } from './signature.ts';

/** The flags of S3. The environment, or else a default, takes the place of an empty value. */
export interface S3Flags {
  /** If empty, it is taken from the environment, and else it is Amazon's server of the region. */
  readonly endpoint: string;
  readonly region: string;
}

interface S3Location {
  readonly bucket: string;
  /** The key or prefix without leading and trailing slashes. It is empty for the bucket itself. */
  readonly key: string;
}

/** The complete settings of one bucket. */
export interface S3Settings {
  /** The URL of the bucket. If it has a path, that has no trailing slash. */
  readonly url: URL;
  readonly region: string;
  readonly credentials: S3Credentials;
  /** PEM certificates that are trusted in addition to those of the system. */
  readonly ca?: string;
}

type Environment = Readonly<Record<string, string | undefined>>;

const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;

/** Whether a place of a backup is in S3. */
export const isS3 = (place: string): boolean => place.startsWith('s3://');

/** Parses a place such as `s3://backups/cluster`. Throws `UsageError`, which shows the form that is expected. */
export function parseS3Location(place: string, form = 's3://BUCKET/PREFIX'): S3Location {
  const [bucket = '', ...segments] = place.slice('s3://'.length).split('/');
  const parts = segments.filter((part) => part !== '');
  if (!BUCKET.test(bucket) || parts.some((part) => part === '.' || part === '..'))
    throw new UsageError(`${quoteText(place)} is not of the form ${form}`);
  return { bucket, key: parts.join('/') };
}

const firstOf = (...values: readonly (string | undefined)[]): string | undefined =>
  values.find((value) => value !== undefined && value !== '');

/**
 * Collects the settings from flags and environment variables. Rejects with `CommandError` where something is missing or cannot
 * be read.
 */
export async function s3Settings(bucket: string, flags: S3Flags, env: Environment): Promise<S3Settings> {
  const region = firstOf(flags.region, env['AWS_REGION'], env['AWS_DEFAULT_REGION']) ?? 'us-east-1';
  if (!/^[a-z0-9-]{1,64}$/.test(region)) throw new CommandError(`${quoteText(region)} is not the name of a region`);
  const endpoint = firstOf(flags.endpoint, env['AWS_ENDPOINT_URL_S3'], env['AWS_ENDPOINT_URL']);
  const caFile = firstOf(env['AWS_CA_BUNDLE']);
  return {
    url: bucketUrl(bucket, region, endpoint),
    region,
    credentials: await credentialsOf(env),
    ...(caFile === undefined ? {} : { ca: await readText(caFile, 'AWS_CA_BUNDLE names it') }),
  };
}

/**
 * Returns the URL of a bucket. Amazon's buckets have host names, unless they have a dot in their name. For other servers, the
 * bucket is in the path.
 */
function bucketUrl(bucket: string, region: string, endpoint: string | undefined): URL {
  if (endpoint === undefined)
    return bucket.includes('.')
      ? new URL(`https://s3.${region}.amazonaws.com/${bucket}`)
      : new URL(`https://${bucket}.s3.${region}.amazonaws.com`);
  const url = URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol) || url.username !== '' || url.search !== '')
    throw new CommandError(`the S3 endpoint ${quoteText(endpoint)} is not of the form https://HOST:PORT`);
  url.pathname = `${trimEnd(url.pathname, '/')}/${bucket}`;
  return url;
}

const CREDENTIALS_REMEDY =
  'S3 takes its credentials from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from AWS_SHARED_CREDENTIALS_FILE';

async function credentialsOf(env: Environment): Promise<S3Credentials> {
  const [accessKeyId, secretAccessKey] = [env['AWS_ACCESS_KEY_ID'] ?? '', env['AWS_SECRET_ACCESS_KEY'] ?? ''];
  if (accessKeyId !== '' && secretAccessKey !== '')
    return withToken({ accessKeyId, secretAccessKey }, env['AWS_SESSION_TOKEN']);
  const file =
    firstOf(env['AWS_SHARED_CREDENTIALS_FILE']) ?? join(firstOf(env['HOME']) ?? homedir(), '.aws/credentials');
  const profile = firstOf(env['AWS_PROFILE']) ?? 'default';
  const values = profileOf(await readText(file, CREDENTIALS_REMEDY), profile);
  const [id, secret] = [values.get('aws_access_key_id') ?? '', values.get('aws_secret_access_key') ?? ''];
  if (id === '' || secret === '') throw new CommandError(`${file} has no credentials in the profile [${profile}]`);
  return withToken({ accessKeyId: id, secretAccessKey: secret }, values.get('aws_session_token'));
}

const withToken = (credentials: S3Credentials, sessionToken: string | undefined): S3Credentials =>
  sessionToken === undefined || sessionToken === '' ? credentials : { ...credentials, sessionToken };

/** Returns the values of one section of an INI file. */
function profileOf(text: string, profile: string): ReadonlyMap<string, string> {
  const values = new Map<string, string>();
  let isInside = false;
  for (const line of text.split('\n').map((raw) => raw.trim())) {
    const section = /^\[\s*(?:profile\s+)?(.*?)\s*\]$/.exec(line)?.[1];
    if (section !== undefined) isInside = section === profile;
    const [, name = '', value = ''] = /^([a-z_]+)\s*=\s*(.*)$/.exec(line) ?? [];
    if (isInside && name !== '') values.set(name, value);
  }
  return values;
}

async function readText(file: string, remedy: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new CommandError(`${file} cannot be read (${code}); ${remedy}`, { cause: error });
  }
}
