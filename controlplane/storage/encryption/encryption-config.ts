/** Parses the `--encryption-provider-config` file, which assigns encryption providers to resources. */
import { errorMessage } from '../../../api/meta/error-message.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { parseDuration } from '../../../api/component/duration.ts';
import { parseConfigFile, shapeFault, type ConfigShape } from '../../model/config-shape.ts';
import { CIPHER_NAMES, type EncryptionProvider, identityProvider, keyProviders, type NamedKey } from './provider.ts';

/** One entry of `resources` of the file. */
export interface ResourceProviders {
  /** `secrets`, `deployments.apps`, `*.apps`, `*.` (the core group) or `*.*`. */
  readonly resources: readonly string[];
  /** The first provider encrypts. All providers decrypt. */
  readonly providers: readonly EncryptionProvider[];
}

/** A provider of type `kms` with `apiVersion: v2`. */
export interface KmsOptions {
  readonly name: string;
  /** The address of the key management service, such as `unix:///run/kms.sock`. */
  readonly endpoint: string;
  readonly timeoutMs: number;
}

type KmsFactory = (options: KmsOptions) => Promise<EncryptionProvider>;

const API_VERSION = 'apiserver.config.k8s.io/v1';
const KEYS = { keys: [{ name: 'text', secret: 'text' }] } as const;
const SHAPE: ConfigShape = {
  apiVersion: 'text',
  kind: 'text',
  // A provider is checked by its name.
  resources: [{ resources: ['text'], providers: ['any'] }],
};
const PROVIDERS: ConfigShape = {
  identity: {},
  kms: { apiVersion: 'text', name: 'text', cachesize: 'number', endpoint: 'text', timeout: 'text' },
  ...Object.fromEntries(CIPHER_NAMES.map((name) => [name, KEYS])),
};
const PROVIDER_NAMES = ['identity', 'kms', ...CIPHER_NAMES];

/**
 * Parses the configuration file. Rejects with an error that has the file name and the reason, and with the error of
 * `connectKms`. A message never contains a key.
 */
export async function parseEncryptionConfig(
  text: string,
  path: string,
  connectKms: KmsFactory,
): Promise<ResourceProviders[]> {
  const refuse = (why: string): never => {
    throw new Error(`${path}: ${why}`);
  };
  const value = parseConfigFile(text, path);
  if (!isJsonObject(value) || value['kind'] !== 'EncryptionConfiguration' || value['apiVersion'] !== API_VERSION)
    return refuse(`not an EncryptionConfiguration of ${API_VERSION}`);
  const fault = shapeFault(value, SHAPE);
  if (fault !== undefined) return refuse(fault);
  const { resources } = value;
  if (!Array.isArray(resources) || resources.length === 0) return refuse('resources are missing');
  const rows: ResourceProviders[] = [];
  for (const [i, row] of resources.entries()) {
    const at = `resources[${i}]`;
    if (!isJsonObject(row)) return refuse(`${at} must be an object`);
    const names = row['resources'];
    if (!Array.isArray(names) || names.length === 0) return refuse(`${at}.resources is missing`);
    const providerList = row['providers'];
    if (!Array.isArray(providerList) || providerList.length === 0) return refuse(`${at}.providers is missing`);
    const providers: EncryptionProvider[] = [];
    for (const [n, provider] of providerList.entries())
      providers.push(...(await providersOf(provider, `${at}.providers[${n}]`, refuse, connectKms)));
    rows.push({ resources: names.map(String), providers });
  }
  return rows;
}

type Refuse = (why: string) => never;

async function providersOf(
  provider: unknown,
  at: string,
  refuse: Refuse,
  connectKms: KmsFactory,
): Promise<EncryptionProvider[]> {
  const [name = '', ...others] = isJsonObject(provider) ? Object.keys(provider) : [];
  if (!isJsonObject(provider) || name === '' || others.length > 0)
    return refuse(`${at} must name exactly one provider`);
  const fault = PROVIDER_NAMES.includes(name) ? shapeFault(provider, PROVIDERS, at) : undefined;
  if (fault !== undefined) return refuse(fault);
  const settings = isJsonObject(provider[name]) ? provider[name] : {};
  if (name === 'identity') return [identityProvider];
  if (name === 'kms') return [await connectKms(kmsOptions(settings, at, refuse))];
  if (!CIPHER_NAMES.includes(name)) return refuse(`${at}: "${name}" is not a provider`);
  const { keys } = settings;
  if (!Array.isArray(keys) || keys.length === 0) return refuse(`${at}.${name}.keys is missing`);
  const namedKeys = keys.map((key: unknown, i): NamedKey => {
    const { name: keyName, secret } = isJsonObject(key) ? key : {};
    if (typeof keyName !== 'string' || keyName === '' || keyName.includes(':'))
      return refuse(`${at}.${name}.keys[${i}].name must be a name without colons`);
    if (typeof secret !== 'string' || !/^[A-Za-z0-9+/]+={0,2}$/.test(secret))
      return refuse(`${at}.${name}.keys[${i}].secret must be base64`);
    return { name: keyName, secret: Buffer.from(secret, 'base64') };
  });
  if (new Set(namedKeys.map((key) => key.name)).size < namedKeys.length)
    return refuse(`${at}.${name}.keys: duplicate name`);
  try {
    return keyProviders(name, namedKeys);
  } catch (error) {
    return refuse(`${at}: ${errorMessage(error)}`);
  }
}

function kmsOptions(settings: Record<string, unknown>, at: string, refuse: Refuse): KmsOptions {
  const { apiVersion = 'v2', name, endpoint, timeout = '3s' } = settings;
  if (apiVersion !== 'v2') return refuse(`${at}.kms.apiVersion: only v2 is supported`);
  if (typeof name !== 'string' || name === '' || name.includes(':'))
    return refuse(`${at}.kms.name must be a name without colons`);
  if (typeof endpoint !== 'string' || !endpoint.startsWith('unix://'))
    return refuse(`${at}.kms.endpoint must be a unix socket: unix:///path`);
  const timeoutMs = typeof timeout === 'string' ? (parseDuration(timeout) ?? 0) : 0;
  if (timeoutMs <= 0) return refuse(`${at}.kms.timeout must be a duration above 0`);
  return { name, endpoint, timeoutMs };
}
