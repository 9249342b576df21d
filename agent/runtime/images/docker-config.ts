/**
 * Decodes registry credentials in Docker's formats, `config.json` and the older `.dockercfg`, as the kubelet does: the content
 * is the user's, and errors show nothing of it, because they become statuses and events. Pure.
 */
import { trimEnd } from '../../../api/component/trim.ts';

/** The credentials of one entry. Texts that the entry lacks are empty. */
export interface RegistryLogin {
  readonly username: string;
  readonly password: string;
  readonly email: string;
  /** The refresh token that `docker login` keeps for some registries, which the kubelet ignores. */
  readonly identityToken: string;
}

/** The content is not in the format. */
export class DockerConfigError extends Error {
  override readonly name = 'DockerConfigError';
}

/** Returns the entries with the patterns of their images. Throws `DockerConfigError`. */
export function loginsOf(
  text: string,
  format: 'config.json' | 'dockercfg',
): readonly (readonly [pattern: string, login: RegistryLogin])[] {
  const content = objectOf(parse(text), 'the registry credentials');
  const entries =
    format === 'dockercfg' ? content : objectOf(content.get('auths'), 'auths of the registry credentials');
  return [...entries].map(([key, entry]) => [patternOf(key), loginOf(entry)]);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The message of the parser has parts of the text.
    throw new DockerConfigError('the registry credentials are not valid JSON');
  }
}

/**
 * Returns the members of an object. JSON's null is an empty object, as in Go. Throws an error that names `subject` for other
 * values.
 */
function objectOf(value: unknown, subject: string): ReadonlyMap<string, unknown> {
  if (value === undefined || value === null) return new Map();
  if (typeof value !== 'object' || Array.isArray(value)) throw new DockerConfigError(`${subject} must be an object`);
  return new Map(Object.entries(value));
}

/** Returns the key of an entry without scheme and version of the registry's API, which older versions of Docker wrote. */
function patternOf(key: string): string {
  const bare = key.replace(/^https?:\/\//, '');
  const slash = bare.indexOf('/');
  const host = slash === -1 ? bare : bare.slice(0, slash);
  const path = slash === -1 ? '' : bare.slice(slash).replace(/^\/v[12](?=\/)/, '');
  const name = host === 'index.docker.io' ? 'docker.io' : host;
  return path === '/' ? name : name + path;
}

function loginOf(value: unknown): RegistryLogin {
  const entry = objectOf(value, 'an entry of the registry credentials');
  const text = (name: string): string => {
    const found = entry.get(name) ?? '';
    if (typeof found !== 'string') throw new DockerConfigError(`${name} of the registry credentials must be a string`);
    return found;
  };
  const auth = text('auth');
  const names = { username: text('username'), password: text('password') };
  return { ...(auth === '' ? names : pairOf(auth)), email: text('email'), identityToken: text('identitytoken') };
}

/**
 * Decodes `base64(username:password)`, with or without padding. It takes precedence over the fields `username` and `password`.
 * Throws `DockerConfigError` for another text.
 */
function pairOf(auth: string): { readonly username: string; readonly password: string } {
  const decoded = Buffer.from(auth, 'base64').toString('utf8');
  const colon = decoded.indexOf(':');
  // Go's decoder skips line breaks.
  if (!/^[A-Za-z0-9+/]*=*$/.test(auth.replace(/[\r\n]/g, '')) || colon === -1)
    throw new DockerConfigError('unable to parse auth field, must be formatted as base64(username:password)');
  return { username: decoded.slice(0, colon), password: trimEnd(decoded.slice(colon + 1), '\0') };
}
