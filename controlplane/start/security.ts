/** Runs the third phase of the start: certificates, authorization, clients of this process, and authentication. */
import { clientMetrics } from '../../api/client/client-metrics.ts';
import { readPem } from '../../api/pki/pem.ts';
import { createPublicKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Secret } from '../../api/kinds/kinds.ts';
import { authorizationCondition } from '../security/admission/policy/match-conditions.ts';
import { type Authenticators, buildAuthenticators } from '../security/authentication/authenticators.ts';
import {
  type AuthenticationConfig,
  type JwtSettings,
  loadAuthenticationConfig,
} from '../security/authentication/authentication-config.ts';
import { authenticationMetrics } from '../security/authentication/authentication-metrics.ts';
import { followPair } from '../security/files/followed-pair.ts';
import type { AgentCredentials } from '../model/agent-request.ts';
import { type CaBundle, fileCaBundle, fixedCaBundle } from '../security/files/ca-bundle.ts';
import { verificationKey } from '../security/authentication/service-account.ts';
import { TokenIssuer } from '../security/authentication/token-issuer.ts';
import { authorizationMetrics } from '../security/authorization/authorization-metrics.ts';
import { type Authorizers, buildAuthorizers } from '../security/authorization/authorizers.ts';
import { type FollowedFile, followFile } from '../security/files/followed-file.ts';
import type { ControlPlaneFlags } from '../options/controlplane-options.ts';
import { storageBackendOf } from '../options/storage.ts';
import { ensurePki, type Pki } from '../security/pki/pki.ts';
import { KUBERNETES_ADDRESS } from '../controllers/cluster-objects/kubernetes-service.ts';
import { serviceAddress } from '../controllers/cluster-objects/service-addresses.ts';
import { background } from '../../api/machinery/background.ts';
import { formatTime } from '../../api/machinery/clock.ts';
import { secrets } from '../../api/client/resources.ts';
import { type Clients, createClients } from './clients.ts';
import { hostAddresses, hostNames, primaryAddress } from './host-address.ts';
import type { ReadersPhase } from './readers.ts';
import type { Setting } from './setting.ts';
import type { StoresPhase } from './stores.ts';
import { StartError } from '../model/start-error.ts';
import { TOKEN_LAST_USED_LABEL } from '../../api/meta/well-known-labels.ts';

interface Security {
  readonly pki: Pki;
  readonly authenticators: Authenticators;
  readonly authorizers: Authorizers;
  readonly issuer: TokenIssuer;
  readonly clientCa: CaBundle;
  readonly frontProxyCa: CaBundle;
  readonly audiences: readonly string[];
  /** Read for each connection to an agent, because certificates are rotated. */
  readonly agentCredentials: () => AgentCredentials;
}

/** What this phase adds for the phases after it. */
export interface SecurityPhase {
  readonly security: Security;
  readonly clients: Clients;
}

type Before = Setting & StoresPhase & ReadersPhase;

/**
 * Builds the security phase. Rejects if flags exclude each other, or if a file that a flag names cannot be read or is invalid.
 */
export async function buildSecurity(before: Before): Promise<SecurityPhase> {
  const { flags, clock, turns, registry, onClose } = before;
  const pki = await openPki(before);
  const authorizationText = flags.authorizationConfig === '' ? '' : readFileSync(flags.authorizationConfig, 'utf8');
  const authorizers = await authorizersOf(before, authorizationText);
  onClose(() => authorizers.close());
  const { catalog } = registry;
  const clients = createClients({ catalog, authorizer: authorizers.authorizer, clock, turns });
  const clientCa = caBundle(before, flags.clientCaFile, pki.material().ca.certificatePem);
  const frontProxyCa = caBundle(before, flags.requestheaderClientCaFile, pki.material().frontProxyCa.certificatePem);
  const tokens = serviceAccountTokens(before, pki);
  const configText = flags.authenticationConfig === '' ? '' : readFileSync(flags.authenticationConfig, 'utf8');
  const structured = authenticationConfig(flags, configText);
  const authenticators = await buildAuthenticators({
    ...authenticatorFlags(before, structured),
    clientCa,
    requestHeader: {
      ca: frontProxyCa,
      allowedNames: flags.requestheaderAllowedNames,
      usernameHeaders: flags.requestheaderUsernameHeaders,
      uidHeaders: flags.requestheaderUidHeaders,
      groupHeaders: flags.requestheaderGroupHeaders,
      extraHeadersPrefixes: flags.requestheaderExtraHeadersPrefix,
    },
    serviceAccounts: {
      issuers: flags.serviceAccountIssuer,
      keys: tokens.keys,
      lookup: flags.serviceAccountLookup,
      onLegacyToken: (secret) => markUsed(before, clients, secret),
    },
    apiAudiences: tokens.audiences,
  });
  onClose(() => authenticators.close());
  const inForce = { authenticators, authorizers, structured, configText, authorizationText };
  for (const file of followConfigs(before, inForce)) onClose(() => file.close());
  const { issuer, audiences } = tokens;
  const agentCredentials = agentCredentialsOf(before, pki);
  return {
    security: { pki, authenticators, authorizers, issuer, clientCa, frontProxyCa, audiences, agentCredentials },
    clients,
  };
}

async function openPki({ directory, clock, logger, flags, preparation, signal }: Before): Promise<Pki> {
  const pki = await ensurePki({
    directory: pkiDirectory(directory),
    clock,
    logger,
    hosts: [...hostNames(), ...(flags.externalHostname === '' ? [] : [flags.externalHostname])],
    addresses: () => [...hostAddresses(), ...(flags.advertiseAddress === '' ? [] : [flags.advertiseAddress])],
    serviceIp: serviceAddress(flags.serviceClusterIpRange, KUBERNETES_ADDRESS),
    serviceAccountKey: preparation.serviceAccountKey,
  });
  if (storageBackendOf(flags) !== 'memory') pki.watch(signal);
  return pki;
}

function caBundle({ clock, logger }: Setting, file: string, ownPem: string): CaBundle {
  return file === '' ? fixedCaBundle(ownPem) : fileCaBundle(file, clock, logger);
}

/**
 * Returns the reader of the credentials for agents, from `--kubelet-client-certificate` and the flags beside it. The files are
 * read again when they change. Throws if only one of certificate and key is given, and if a file is invalid.
 */
function agentCredentialsOf(
  { flags, clock, logger }: Pick<Setting, 'flags' | 'clock' | 'logger'>,
  pki: Pick<Pki, 'material'>,
): () => AgentCredentials {
  const { kubeletClientCertificate, kubeletClientKey, kubeletCertificateAuthority } = flags;
  if ((kubeletClientCertificate === '') !== (kubeletClientKey === ''))
    throw new StartError('--kubelet-client-certificate and --kubelet-client-key belong together: give both or neither');
  const authorities =
    kubeletCertificateAuthority === '' ? undefined : fileCaBundle(kubeletCertificateAuthority, clock, logger);
  const pair =
    kubeletClientCertificate === '' ? undefined : followPair(kubeletClientCertificate, kubeletClientKey, clock, logger);
  return () => {
    const { kubeletClient } = pki.material();
    const issued = { cert: kubeletClient.certificatePem, key: kubeletClient.privateKeyPem };
    return { ...(pair?.() ?? issued), ...(authorities === undefined ? {} : { ca: authorities.pem() }) };
  };
}

interface ServiceAccountTokens {
  readonly issuer: TokenIssuer;
  readonly keys: readonly ReturnType<typeof verificationKey>[];
  readonly audiences: readonly string[];
}

function serviceAccountTokens({ flags, clock }: Setting, pki: Pki): ServiceAccountTokens {
  const [signingIssuer = 'https://kubernetes.default.svc'] = flags.serviceAccountIssuer;
  const signingKey =
    flags.serviceAccountSigningKeyFile === ''
      ? pki.serviceAccountKey.privateKeyPem
      : readFileSync(flags.serviceAccountSigningKeyFile, 'utf8');
  const keyTexts = [
    ...(flags.serviceAccountSigningKeyFile === '' ? [pki.serviceAccountKey.publicKeyPem] : []),
    ...verifyingTexts(flags),
  ];
  const keys = [verificationKey(signingKey), ...keyTexts.flatMap(keysOf)];
  const address = `${flags.advertiseAddress || primaryAddress()}:${flags.securePort}`;
  const issuer = new TokenIssuer({
    privateKeyPem: signingKey,
    verificationKeys: keys,
    issuer: signingIssuer,
    jwksUri: flags.serviceAccountJwksUri || `https://${address}/openid/v1/jwks`,
    clock,
  });
  return { issuer, keys, audiences: flags.apiAudiences.length > 0 ? flags.apiAudiences : [signingIssuer] };
}

function authenticatorFlags(before: Before, structured: AuthenticationConfig) {
  const { flags, clock, logger, listers, metrics } = before;
  return {
    clock,
    logger,
    listers,
    ...(flags.tokenAuthFile === '' ? {} : { tokenFile: flags.tokenAuthFile }),
    bootstrapTokens: flags.enableBootstrapTokenAuth,
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
    anonymous: mayBeAnonymous(before, structured),
    ...(structured.anonymous?.paths === undefined ? {} : { anonymousPaths: structured.anonymous.paths }),
    metrics: authenticationMetrics(metrics),
    requests: clientMetrics(metrics),
  };
}

function authorizersOf({ flags, clock, listers, metrics }: Before, configText: string): Promise<Authorizers> {
  return buildAuthorizers({
    clock,
    listers,
    modes: flags.authorizationMode,
    compileCondition: authorizationCondition,
    ...(flags.authorizationConfig === '' ? {} : { configFile: flags.authorizationConfig, configText }),
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
    metrics: authorizationMetrics(metrics),
    requests: clientMetrics(metrics),
  });
}

/** Marks a Secret with the day on which its token was used. */
function markUsed({ clock, logger, signal }: Setting, { system }: Clients, secret: Secret): void {
  const { namespace = '', name = '' } = secret.metadata;
  const body = {
    metadata: { labels: { [TOKEN_LAST_USED_LABEL]: formatTime(clock.now()).slice(0, 10) } },
  };
  background(system.patch(secrets, namespace, name, { type: 'merge', body }), {
    logger,
    what: 'Marking the Secret of a used token',
    fields: { namespace, name },
    signal,
  });
}

/** Whether anonymous requests are accepted. With `AlwaysAllow` in `--authorization-mode` they are refused. */
function mayBeAnonymous({ flags, logger }: Setting, structured: AuthenticationConfig): boolean {
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

/**
 * Returns the files whose changes replace issuers and authorizers. The setting of anonymous requests cannot change after the
 * start.
 */
function followConfigs(options: Setting, inForce: InForce): readonly FollowedFile[] {
  const { flags } = options;
  const { authenticators, authorizers, structured } = inForce;
  const followed: FollowedFile[] = [];
  if (flags.authenticationConfig !== '') {
    const parse = (text: string) => {
      const next = authenticationConfig(flags, text);
      if (!isDeepStrictEqual(next.anonymous, structured.anonymous))
        throw new Error(`${flags.authenticationConfig}: anonymous: Forbidden: changed from initial configuration file`);
      return (signal: AbortSignal): Promise<void> => authenticators.replaceIssuers(next.jwt, signal);
    };
    const path = flags.authenticationConfig;
    followed.push(followFile({ ...options, path, what: 'authentication', text: inForce.configText, parse }));
  }
  if (flags.authorizationConfig !== '') {
    const parse = (text: string): (() => Promise<void>) => authorizers.replacement(text);
    const path = flags.authorizationConfig;
    followed.push(followFile({ ...options, path, what: 'authorization', text: inForce.authorizationText, parse }));
  }
  return followed;
}

/**
 * Reads the keys that verify service account tokens. Without `--service-account-key-file`, it is the key of
 * `--tls-private-key-file` if its type allows that.
 */
function verifyingTexts({ serviceAccountKeyFile, tlsPrivateKeyFile }: ControlPlaneFlags): readonly string[] {
  if (serviceAccountKeyFile.length > 0) return serviceAccountKeyFile.map((path) => readFileSync(path, 'utf8'));
  if (tlsPrivateKeyFile === '') return [];
  const text = readFileSync(tlsPrivateKeyFile, 'utf8');
  return ['rsa', 'ec'].includes(createPublicKey(text).asymmetricKeyType ?? '') ? [text] : [];
}

/** Returns all keys of a PEM text. */
function keysOf(text: string): ReturnType<typeof verificationKey>[] {
  return readPem(text)
    .filter(({ label }) => label.endsWith('KEY') || label.endsWith('CERTIFICATE'))
    .map((block) => verificationKey(block.text));
}

/** Returns the configuration of the file, or of the flags that the file replaces. */
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

const pkiDirectory = (dataDirectory: string): string => join(dataDirectory, 'pki');
