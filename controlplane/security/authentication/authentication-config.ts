/**
 * Parses the `--authentication-config` file: JWT issuers with their claim mappings, and the paths that allow anonymous
 * requests.
 */
import { errorMessage } from '../../../api/meta/error-message.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { trimEnd } from '../../../api/component/trim.ts';
import { parseConfigFile, shapeFault, type ConfigShape, API_SERVER_CONFIG_VERSIONS } from '../../model/config-shape.ts';
import { claimRules } from './claim-rules.ts';
import type { OidcOptions } from './oidc.ts';
import { SIGNING_ALGORITHMS } from './signing-algorithms.ts';

/** An issuer of the file, or of the flags, without the means by which the server calls it. */
export type JwtSettings = Omit<OidcOptions, 'client' | 'clock' | 'logger'>;

/** The parsed file, after validation. */
export interface AuthenticationConfig {
  readonly jwt: readonly JwtSettings[];
  /** If it is absent, `--anonymous-auth` decides. */
  readonly anonymous?: { readonly enabled: boolean; readonly paths?: readonly string[] };
}

/** The issuers of this server's own service account tokens, which the file must not contain. */
type OwnIssuers = readonly string[];

const MAPPING = { claim: 'text', prefix: 'text', expression: 'text' } as const;
const SHAPE: ConfigShape = {
  apiVersion: 'text',
  kind: 'text',
  jwt: [
    {
      issuer: {
        url: 'text',
        discoveryURL: 'text',
        certificateAuthority: 'text',
        audiences: ['text'],
        audienceMatchPolicy: 'text',
        egressSelectorType: 'text',
      },
      claimValidationRules: [{ claim: 'text', requiredValue: 'text', expression: 'text', message: 'text' }],
      claimMappings: {
        username: MAPPING,
        groups: MAPPING,
        uid: { claim: 'text', expression: 'text' },
        extra: [{ key: 'text', valueExpression: 'text' }],
      },
      userValidationRules: [{ expression: 'text', message: 'text' }],
    },
  ],
  anonymous: { enabled: 'boolean', conditions: [{ path: 'text' }] },
};

/** Parses the configuration file. Throws an error with the file name and the reason. */
export function loadAuthenticationConfig(
  text: string,
  path: string,
  ownIssuers: OwnIssuers = [],
): AuthenticationConfig {
  const refuse = (why: string): never => {
    throw new Error(`${path}: ${why}`);
  };
  const value = parseConfigFile(text, path);
  if (
    !isJsonObject(value) ||
    value['kind'] !== 'AuthenticationConfiguration' ||
    !API_SERVER_CONFIG_VERSIONS.has(String(value['apiVersion']))
  )
    return refuse('not an AuthenticationConfiguration of apiserver.config.k8s.io');
  const fault = shapeFault(value, SHAPE);
  if (fault !== undefined) return refuse(fault);
  const { anonymous } = value;
  const jwt = value['jwt'] ?? [];
  if (!Array.isArray(jwt)) return refuse('jwt is no list');
  const issuers = new Set<string>();
  const settings = jwt.map((item: unknown, i): JwtSettings => {
    const at = `jwt[${i}]`;
    try {
      const parsed = jwtSettings(item);
      if (ownIssuers.includes(parsed.issuerUrl))
        throw new Error(
          `issuer.url: Invalid value: "${parsed.issuerUrl}": URL must not overlap with disallowed issuers: [${ownIssuers.join(' ')}]`,
        );
      if (issuers.has(parsed.issuerUrl)) throw new Error(`issuer.url: Duplicate value: "${parsed.issuerUrl}"`);
      issuers.add(parsed.issuerUrl);
      return parsed;
    } catch (error) {
      return refuse(`${at}.${errorMessage(error)}`);
    }
  });
  if (anonymous === undefined || anonymous === null) return { jwt: settings };
  if (!isJsonObject(anonymous) || typeof anonymous['enabled'] !== 'boolean')
    return refuse('anonymous.enabled must be true or false');
  const { enabled, conditions } = anonymous;
  if (conditions === undefined || conditions === null) return { jwt: settings, anonymous: { enabled } };
  if (!Array.isArray(conditions)) return refuse('anonymous.conditions is no list');
  if (!enabled && conditions.length > 0) return refuse('anonymous.conditions: only allowed where enabled is true');
  const paths = conditions.map((one: unknown, i): string => {
    const condition = isJsonObject(one) ? one['path'] : undefined;
    if (typeof condition !== 'string' || condition === '') return refuse(`anonymous.conditions[${i}].path is required`);
    return condition;
  });
  return { jwt: settings, anonymous: paths.length === 0 ? { enabled } : { enabled, paths } };
}

function jwtSettings(item: unknown): JwtSettings {
  const { issuer, ...rules } = isJsonObject(item) ? item : {};
  if (!isJsonObject(issuer)) throw new Error('issuer is required');
  const { url, discoveryURL, certificateAuthority, audiences, audienceMatchPolicy } = issuer;
  if (typeof url !== 'string' || url === '') throw new Error('issuer.url: Required value: URL is required');
  checkUrl(url, 'issuer.url');
  if (typeof discoveryURL === 'string' && discoveryURL !== '') {
    checkUrl(discoveryURL, 'issuer.discoveryURL');
    if (trimEnd(discoveryURL, '/') === trimEnd(url, '/'))
      throw new Error(`issuer.discoveryURL: Invalid value: "${discoveryURL}": discoveryURL must be different from URL`);
  }
  if (!Array.isArray(audiences) || audiences.length === 0)
    throw new Error('issuer.audiences: Required value: at least one jwt[].issuer.audiences is required');
  if (audiences.length > 1 && audienceMatchPolicy !== 'MatchAny')
    throw new Error('issuer.audienceMatchPolicy must be MatchAny for multiple audiences');
  return {
    issuerUrl: url,
    ...(typeof discoveryURL === 'string' && discoveryURL !== '' ? { discoveryUrl: discoveryURL } : {}),
    ...(typeof certificateAuthority === 'string' && certificateAuthority !== '' ? { ca: certificateAuthority } : {}),
    clientId: String(audiences[0]),
    audiences: audiences.map(String),
    signingAlgorithms: SIGNING_ALGORITHMS,
    userOf: claimRules(rules),
    usernameClaim: 'sub',
    usernamePrefix: undefined,
    groupsClaim: '',
    groupsPrefix: '',
    requiredClaims: {},
  };
}

function checkUrl(text: string, at: string): void {
  const refuse = (why: string): never => {
    throw new Error(`${at}: Invalid value: "${text}": ${why}`);
  };
  const url = URL.parse(text) ?? refuse('no URL');
  if (url.protocol !== 'https:') refuse('URL scheme must be https');
  if (url.username !== '' || url.password !== '') refuse('URL must not contain a username or password');
  if (url.search !== '') refuse('URL must not contain a query');
  if (url.hash !== '') refuse('URL must not contain a fragment');
}
