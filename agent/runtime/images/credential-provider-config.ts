/**
 * Reads `--image-credential-provider-config`: a file of kind CredentialProviderConfig, or a directory of such files in order of
 * their names. Validates them together. The agent does not start with an invalid file.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile, stat } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { parseYaml } from '../../../api/codec/yaml.ts';
import { parseDuration } from '../../../api/component/duration.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { JsonValue } from '../../../api/meta/object.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import { ConfigurationError } from '../../base/model/configuration-error.ts';
import { checkImagePattern } from './image-match.ts';

/** The service account token that a provider gets for a pod. */
export interface TokenAttributes {
  readonly audience: string;
  readonly requiresServiceAccount: boolean;
  readonly requiredAnnotations: readonly string[];
  readonly optionalAnnotations: readonly string[];
  /** What cached credentials are valid for: `ServiceAccount` means all tokens of the account, `Token` means that token only. */
  readonly cacheType: 'ServiceAccount' | 'Token';
}

/** A valid provider. `defaultCacheMs` is used if its response has no duration. */
export interface CredentialProvider {
  readonly name: string;
  readonly apiVersion: string;
  readonly matchImages: readonly string[];
  readonly defaultCacheMs: number;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly tokenAttributes: TokenAttributes | undefined;
}

const CONFIG_VERSIONS = ['v1', 'v1beta1', 'v1alpha1'].map((version) => `kubelet.config.k8s.io/${version}`);
const CURRENT_VERSION = 'credentialprovider.kubelet.k8s.io/v1';
const PLUGIN_VERSIONS = ['v1', 'v1alpha1', 'v1beta1'].map((version) => `credentialprovider.kubelet.k8s.io/${version}`);
const CACHE_TYPES = ['ServiceAccount', 'Token'] as const;
const ANNOTATION_KEY = /^(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?\/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?$/;

/** The providers in the order of the files, with the hash of the files in the kubelet's form (`sha256:` and hex digits). */
interface CredentialProviderConfig {
  readonly providers: readonly CredentialProvider[];
  readonly hash: string;
}

/**
 * Reads the file, or the files of the directory. Throws `ConfigurationError` with one line for each mistake, and if nothing can
 * be read there.
 */
export async function readCredentialProviders(path: string): Promise<CredentialProviderConfig> {
  const providers: CredentialProvider[] = [];
  const problems: string[] = [];
  const hash = createHash('sha256');
  for (const file of await filesOf(path)) {
    const reader = new Reader(file);
    try {
      const content = await readFile(file);
      // The length before each file distinguishes files that have the same bytes together.
      const length = Buffer.alloc(8);
      length.writeBigUInt64BE(BigInt(content.length));
      hash.update(length).update(content);
      providers.push(...providersOf(reader, parseYaml(content.toString('utf8')).value));
    } catch (error) {
      reader.report('', errorMessage(error));
    }
    problems.push(...reader.problems);
  }
  const names = providers.map(({ name }) => name);
  for (const name of new Set(names.filter((entry, index) => names.indexOf(entry) !== index)))
    problems.push(`${path}: duplicate provider name ${quoteText(name)} found in configuration file(s)`);
  if (problems.length > 0) throw new ConfigurationError(problems.join('\n'));
  return { providers, hash: `sha256:${hash.digest('hex')}` };
}

async function filesOf(path: string): Promise<string[]> {
  try {
    if (!(await stat(path)).isDirectory()) return [path];
    const names = (await readdir(path, { withFileTypes: true }))
      .filter((entry) => !entry.isDirectory() && ['.json', '.yaml', '.yml'].includes(extname(entry.name)))
      .map((entry) => join(path, entry.name));
    if (names.length > 0) return names.toSorted();
  } catch (error) {
    throw new ConfigurationError(
      `--image-credential-provider-config: ${path} cannot be read: ${(error as Error).message}`,
      { cause: error },
    );
  }
  throw new ConfigurationError(
    `--image-credential-provider-config: there is no .json, .yaml or .yml file in the directory ${path}`,
  );
}

type Fields = ReadonlyMap<string, JsonValue | undefined>;

/** Reads values from a file and collects the errors. */
class Reader {
  readonly #file: string;
  readonly problems: string[] = [];

  constructor(file: string) {
    this.#file = file;
  }

  report(path: string, problem: string): void {
    this.problems.push(`${this.#file}: ${path === '' ? '' : `${path}: `}${problem}`);
  }

  fields(value: JsonValue | undefined, path: string, names: readonly string[]): Fields {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      this.report(path, 'must be an object');
      return new Map();
    }
    const fields = new Map(Object.entries(value));
    for (const name of fields.keys()) if (!names.includes(name)) this.report(path, `unknown field ${quoteText(name)}`);
    return fields;
  }

  text(fields: Fields, name: string, path: string): string {
    const value = fields.get(name) ?? '';
    if (typeof value === 'string') return value;
    this.report(`${path}.${name}`, 'must be a string');
    return '';
  }

  list(fields: Fields, name: string, path: string): readonly JsonValue[] {
    const value = fields.get(name) ?? [];
    if (Array.isArray(value)) return value;
    this.report(`${path}.${name}`, 'must be a list');
    return [];
  }

  texts(fields: Fields, name: string, path: string): string[] {
    const list = this.list(fields, name, path);
    const texts = list.filter((entry): entry is string => typeof entry === 'string');
    if (texts.length < list.length) this.report(`${path}.${name}`, 'must be a list of strings');
    return texts;
  }
}

function providersOf(reader: Reader, value: JsonValue): CredentialProvider[] {
  const fields = reader.fields(value, '', ['apiVersion', 'kind', 'providers']);
  const apiVersion = reader.text(fields, 'apiVersion', '');
  if (!CONFIG_VERSIONS.includes(apiVersion) || fields.get('kind') !== 'CredentialProviderConfig') {
    reader.report('', `must be a CredentialProviderConfig of ${CONFIG_VERSIONS.join(', ')}`);
    return [];
  }
  const providers = reader.list(fields, 'providers', '');
  if (providers.length === 0) reader.report('providers', 'at least 1 item in plugins is required');
  return providers.map((entry, index) => providerOf(reader, entry, `providers[${index}]`));
}

function providerOf(reader: Reader, value: JsonValue, path: string): CredentialProvider {
  const fieldNames = ['name', 'matchImages', 'defaultCacheDuration', 'apiVersion', 'args', 'env', 'tokenAttributes'];
  const fields = reader.fields(value, path, fieldNames);
  const name = reader.text(fields, 'name', path);
  if (name === '') reader.report(`${path}.name`, 'is required');
  if (/[/ ]/.test(name) || name === '.' || name === '..')
    reader.report(`${path}.name`, `${quoteText(name)} must be the name of a file, without '/' and spaces`);
  const apiVersion = reader.text(fields, 'apiVersion', path);
  if (!PLUGIN_VERSIONS.includes(apiVersion))
    reader.report(`${path}.apiVersion`, `${quoteText(apiVersion)} is not one of ${PLUGIN_VERSIONS.join(', ')}`);
  const matchImages = reader.texts(fields, 'matchImages', path);
  if (matchImages.length === 0) reader.report(`${path}.matchImages`, 'at least 1 item in matchImages is required');
  for (const pattern of matchImages) {
    try {
      checkImagePattern(pattern);
    } catch (error) {
      reader.report(
        `${path}.matchImages`,
        `${quoteText(pattern)}: match image is invalid: ${(error as Error).message}`,
      );
    }
  }
  const tokenAttributes = fields.has('tokenAttributes')
    ? tokenAttributesOf(reader, fields.get('tokenAttributes'), `${path}.tokenAttributes`)
    : undefined;
  if (tokenAttributes !== undefined && apiVersion !== CURRENT_VERSION)
    reader.report(`${path}.tokenAttributes`, `tokenAttributes is only supported for ${CURRENT_VERSION} API version`);
  return {
    name,
    apiVersion,
    matchImages,
    defaultCacheMs: durationOf(reader, fields, path),
    args: reader.texts(fields, 'args', path),
    env: environmentOf(reader, fields, path),
    tokenAttributes,
  };
}

function durationOf(reader: Reader, fields: Fields, path: string): number {
  const at = `${path}.defaultCacheDuration`;
  const text = reader.text(fields, 'defaultCacheDuration', path);
  if (text === '') {
    reader.report(at, 'is required');
    return 0;
  }
  const parsed = parseDuration(text);
  if (parsed === undefined) reader.report(at, `${quoteText(text)} is not a duration such as 10m or 1h30m`);
  else if (parsed < 0) reader.report(at, 'must be greater than or equal to 0');
  return parsed ?? 0;
}

function environmentOf(reader: Reader, fields: Fields, path: string): Record<string, string> {
  const env: Record<string, string> = {};
  for (const [index, entry] of reader.list(fields, 'env', path).entries()) {
    const at = `${path}.env[${index}]`;
    const variable = reader.fields(entry, at, ['name', 'value']);
    env[reader.text(variable, 'name', at)] = reader.text(variable, 'value', at);
  }
  return env;
}

function tokenAttributesOf(reader: Reader, value: JsonValue | undefined, path: string): TokenAttributes {
  const fields = reader.fields(value, path, [
    'serviceAccountTokenAudience',
    'cacheType',
    'requireServiceAccount',
    'requiredServiceAccountAnnotationKeys',
    'optionalServiceAccountAnnotationKeys',
  ]);
  const audience = reader.text(fields, 'serviceAccountTokenAudience', path);
  if (audience === '') reader.report(`${path}.serviceAccountTokenAudience`, 'is required');
  const requires = fields.get('requireServiceAccount');
  if (typeof requires !== 'boolean') reader.report(`${path}.requireServiceAccount`, 'is required: true or false');
  const cacheType = CACHE_TYPES.find((type) => type === fields.get('cacheType'));
  if (cacheType === undefined) reader.report(`${path}.cacheType`, `is required: one of ${CACHE_TYPES.join(', ')}`);
  const requiredAnnotations = annotationKeys(reader, fields, 'requiredServiceAccountAnnotationKeys', path);
  const optionalAnnotations = annotationKeys(reader, fields, 'optionalServiceAccountAnnotationKeys', path);
  if (requires === false && requiredAnnotations.length > 0)
    reader.report(
      `${path}.requiredServiceAccountAnnotationKeys`,
      'requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set',
    );
  if (requiredAnnotations.some((key) => optionalAnnotations.includes(key)))
    reader.report(path, 'annotation keys cannot be both required and optional');
  return {
    audience,
    requiresServiceAccount: requires === true,
    requiredAnnotations,
    optionalAnnotations,
    cacheType: cacheType ?? 'Token',
  };
}

function annotationKeys(reader: Reader, fields: Fields, name: string, path: string): string[] {
  const keys = reader.texts(fields, name, path);
  for (const [index, key] of keys.entries()) {
    if (!ANNOTATION_KEY.test(key)) reader.report(`${path}.${name}`, `${quoteText(key)} is no name of an annotation`);
    if (keys.indexOf(key) !== index) reader.report(`${path}.${name}`, `${quoteText(key)} is listed twice`);
  }
  return keys;
}
