/** Puts authentication, authorization and admission together from the flags. Called by `main.ts` alone. */
import { readPem } from '../../api/pki/pem.ts';
import { createPublicKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Logger } from '../../api/component/logger.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Secret } from '../../api/machinery/kinds.ts';
import { authorizationCondition } from '../admission/policy/match-conditions.ts';
import { admissionChain, type ChainMetrics } from '../admission/chain.ts';
import type { AdmissionChain, AdmissionPlugin } from '../admission/admission.ts';
import type { Sources } from '../readers/sources.ts';
import { type Authenticators, buildAuthenticators } from '../authentication/authenticators.ts';
import {
  type AuthenticationConfig,
  type JwtSettings,
  loadAuthenticationConfig,
} from '../authentication/authentication-config.ts';
import { authenticationMetrics } from '../authentication/authentication-metrics.ts';
import { type CaBundle, fileCaBundle, fixedCaBundle } from '../authentication/ca-bundle.ts';
import { verificationKey } from '../authentication/service-account.ts';
import { TokenIssuer } from '../authentication/token-issuer.ts';
import { authorizationMetrics } from '../authorization/authorization-metrics.ts';
import { type Authorizers, buildAuthorizers } from '../authorization/authorizers.ts';
import { type FollowedFile, followFile } from '../authentication/followed-file.ts';
import type { ControlPlaneFlags } from '../options/controlplane-options.ts';
import type { Pki } from '../pki/pki.ts';
import { StartError } from '../model/start-error.ts';

export interface SecurityOptions {
  readonly flags: ControlPlaneFlags;
  readonly pki: Pki;
  readonly sources: Sources;
  readonly clock: Clock;
  readonly logger: Logger;
  /** A token of a Secret was used for the first time on a day. */
  readonly onLegacyToken: (secret: Secret) => void;
  /** Where clients find the API server: `10.0.0.1:6443`. */
  readonly address: string;
  readonly metrics: MetricsRegistry;
}

export interface Security {
  readonly authenticators: Authenticators;
  readonly authorizers: Authorizers;
  readonly issuer: TokenIssuer;
  readonly clientCa: CaBundle;
  readonly frontProxyCa: CaBundle;
  readonly audiences: readonly string[];
  close(): void;
}

export async function buildSecurity(options: SecurityOptions): Promise<Security> {
  const { flags, pki, sources, clock, logger } = options;
  const clientCa =
    flags.clientCaFile === ''
      ? fixedCaBundle(pki.material().ca.certificatePem)
      : fileCaBundle(flags.clientCaFile, clock, logger);
  const proxyFile = flags.requestheaderClientCaFile;
  const frontProxyCa =
    proxyFile === ''
      ? fixedCaBundle(pki.material().frontProxyCa.certificatePem)
      : fileCaBundle(proxyFile, clock, logger);
  const [signingIssuer = 'https://kubernetes.default.svc'] = flags.serviceAccountIssuer;
  const audiences = flags.apiAudiences.length > 0 ? flags.apiAudiences : [signingIssuer];
  const signingKey =
    flags.serviceAccountSigningKeyFile === ''
      ? pki.serviceAccountKey.privateKeyPem
      : readFileSync(flags.serviceAccountSigningKeyFile, 'utf8');
  const keyTexts = [
    ...(flags.serviceAccountSigningKeyFile === '' ? [pki.serviceAccountKey.publicKeyPem] : []),
    ...verifyingTexts(flags),
  ];
  const keys = [verificationKey(signingKey), ...keyTexts.flatMap(keysOf)];
  const issuer = new TokenIssuer({
    privateKeyPem: signingKey,
    verificationKeys: keys,
    issuer: signingIssuer,
    jwksUri: flags.serviceAccountJwksUri || `https://${options.address}/openid/v1/jwks`,
    clock,
  });
  const configText = flags.authenticationConfig === '' ? '' : readFileSync(flags.authenticationConfig, 'utf8');
  const structured = authenticationConfig(flags, configText);
  const authenticators = await buildAuthenticators({
    clock,
    logger,
    sources,
    clientCa,
    requestHeader: {
      ca: frontProxyCa,
      allowedNames: flags.requestheaderAllowedNames,
      usernameHeaders: flags.requestheaderUsernameHeaders,
      uidHeaders: flags.requestheaderUidHeaders,
      groupHeaders: flags.requestheaderGroupHeaders,
      extraHeadersPrefixes: flags.requestheaderExtraHeadersPrefix,
    },
    ...(flags.tokenAuthFile === '' ? {} : { tokenFile: flags.tokenAuthFile }),
    bootstrapTokens: flags.enableBootstrapTokenAuth,
    serviceAccounts: {
      issuers: flags.serviceAccountIssuer,
      keys,
      lookup: flags.serviceAccountLookup,
      onLegacyToken: options.onLegacyToken,
    },
    apiAudiences: audiences,
    oidc: structured.jwt,
    ...(flags.authenticationTokenWebhookConfigFile === ''
      ? {}
      : {
          webhook: {
            configFile: flags.authenticationTokenWebhookConfigFile,
            version: flags.authenticationTokenWebhookVersion as 'v1' | 'v1beta1',
            cacheTtlMs: flags.authenticationTokenWebhookCacheTtl,
          },
        }),
    anonymous: mayBeAnonymous(options, structured),
    ...(structured.anonymous?.paths === undefined ? {} : { anonymousPaths: structured.anonymous.paths }),
    metrics: authenticationMetrics(options.metrics),
  });
  const authorizationText = flags.authorizationConfig === '' ? '' : readFileSync(flags.authorizationConfig, 'utf8');
  const authorizers = await buildAuthorizers({
    clock,
    sources,
    modes: flags.authorizationMode,
    compileCondition: authorizationCondition,
    ...(flags.authorizationConfig === ''
      ? {}
      : { configFile: flags.authorizationConfig, configText: authorizationText }),
    ...(flags.authorizationPolicyFile === '' ? {} : { policyFile: flags.authorizationPolicyFile }),
    ...(flags.authorizationWebhookConfigFile === ''
      ? {}
      : {
          webhook: {
            configFile: flags.authorizationWebhookConfigFile,
            version: flags.authorizationWebhookVersion as 'v1' | 'v1beta1',
            authorizedTtlMs: flags.authorizationWebhookCacheAuthorizedTtl,
            unauthorizedTtlMs: flags.authorizationWebhookCacheUnauthorizedTtl,
          },
        }),
    metrics: authorizationMetrics(options.metrics),
  });
  const followed = followConfigs(options, { authenticators, authorizers, structured, configText, authorizationText });
  const close = (): void => {
    for (const file of followed) file.close();
    authenticators.close();
    authorizers.close();
  };
  return { authenticators, authorizers, issuer, clientCa, frontProxyCa, audiences, close };
}

/** Where everything is allowed, nobody may stay unknown. */
function mayBeAnonymous({ flags, logger }: SecurityOptions, structured: AuthenticationConfig): boolean {
  const isEnabled = structured.anonymous?.enabled ?? flags.anonymousAuth;
  if (!isEnabled || flags.authorizationConfig !== '' || !flags.authorizationMode.includes('AlwaysAllow'))
    return isEnabled;
  logger.warn({}, 'Anonymous requests are refused: --authorization-mode=AlwaysAllow would allow them everything');
  return false;
}

interface InForce {
  readonly authenticators: Authenticators;
  readonly authorizers: Authorizers;
  readonly structured: AuthenticationConfig;
  readonly configText: string;
  readonly authorizationText: string;
}

/** Issuers and authorizers change with their files; who may be anonymous is settled at the start. */
function followConfigs(options: SecurityOptions, inForce: InForce): readonly FollowedFile[] {
  const { flags } = options;
  const { authenticators, authorizers, structured } = inForce;
  const followed: FollowedFile[] = [];
  if (flags.authenticationConfig !== '') {
    const take = (text: string, signal: AbortSignal): Promise<void> => {
      const next = authenticationConfig(flags, text);
      if (!isDeepStrictEqual(next.anonymous, structured.anonymous))
        throw new Error(`${flags.authenticationConfig}: anonymous: Forbidden: changed from initial configuration file`);
      return authenticators.replaceIssuers(next.jwt, signal);
    };
    const path = flags.authenticationConfig;
    followed.push(followFile({ ...options, path, what: 'authentication', text: inForce.configText, take }));
  }
  if (flags.authorizationConfig !== '') {
    const take = (text: string): Promise<void> => authorizers.replace(text);
    const path = flags.authorizationConfig;
    followed.push(followFile({ ...options, path, what: 'authorization', text: inForce.authorizationText, take }));
  }
  return followed;
}

/** The server's own key verifies where no other is named, if it is of a kind that can. */
function verifyingTexts({ serviceAccountKeyFile, tlsPrivateKeyFile }: ControlPlaneFlags): readonly string[] {
  if (serviceAccountKeyFile.length > 0) return serviceAccountKeyFile.map((path) => readFileSync(path, 'utf8'));
  if (tlsPrivateKeyFile === '') return [];
  const text = readFileSync(tlsPrivateKeyFile, 'utf8');
  return ['rsa', 'ec'].includes(createPublicKey(text).asymmetricKeyType ?? '') ? [text] : [];
}

/** Every key of a PEM text. */
function keysOf(text: string): ReturnType<typeof verificationKey>[] {
  return readPem(text)
    .filter(({ label }) => label.endsWith('KEY') || label.endsWith('CERTIFICATE'))
    .map((block) => verificationKey(block.text));
}

/** Of the file's text, or of the flags that it takes the place of. */
function authenticationConfig(flags: ControlPlaneFlags, text: string): AuthenticationConfig {
  const path = flags.authenticationConfig;
  if (path === '') return { jwt: flags.oidcIssuerUrl === '' ? [] : [oidcOptions(flags)] };
  if (flags.oidcIssuerUrl !== '')
    throw new StartError(
      '--authentication-config and --oidc-issuer-url exclude each other: put the issuer in the file',
    );
  return loadAuthenticationConfig(text, path, flags.serviceAccountIssuer);
}

function oidcOptions(flags: ControlPlaneFlags): JwtSettings {
  return {
    issuerUrl: flags.oidcIssuerUrl,
    clientId: flags.oidcClientId,
    usernameClaim: flags.oidcUsernameClaim,
    usernamePrefix: flags.oidcUsernamePrefix === '' ? undefined : flags.oidcUsernamePrefix,
    groupsClaim: flags.oidcGroupsClaim,
    groupsPrefix: flags.oidcGroupsPrefix,
    requiredClaims: flags.oidcRequiredClaim,
    signingAlgorithms: flags.oidcSigningAlgs,
    ...(flags.oidcCaFile === '' ? {} : { ca: readFileSync(flags.oidcCaFile, 'utf8') }),
  };
}

/**
 * The chain is made before the plugins: plugins read objects through the registry, and the registry asks the chain. Until
 * `set` is called nothing may be written.
 */
export function lateAdmission(): {
  readonly chain: AdmissionChain;
  set(plugins: readonly AdmissionPlugin[], metrics: ChainMetrics, monotonic: () => number): void;
} {
  let inner: AdmissionChain | undefined;
  const ready = (): AdmissionChain => {
    if (inner === undefined) throw new Error('a write came before the admission plugins were there');
    return inner;
  };
  return {
    chain: {
      admit: (attributes, signal) => ready().admit(attributes, signal),
      validate: (attributes, signal) => ready().validate(attributes, signal),
    },
    set(plugins, metrics, monotonic) {
      inner = admissionChain(plugins, metrics, monotonic);
    },
  };
}

export const pkiDirectory = (dataDirectory: string): string => join(dataDirectory, 'pki');
