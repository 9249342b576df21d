/**
 * Adds a token, the CA and the namespace to secrets of type service-account-token, and deletes secrets of deleted service
 * accounts.
 */
import { isNotFound } from '../../../api/meta/status-error.ts';
import type { Secret, ServiceAccount } from '../../../api/kinds/kinds.ts';
import { secrets, serviceAccounts } from '../../../api/client/resources.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { ReconcileLoop, splitKey, type RunController } from '../controller.ts';

/** The type of Secrets that get a token. */
export const TOKEN_SECRET_TYPE = 'kubernetes.io/service-account-token';
/** The annotation of such a Secret that names its service account. */
export const ACCOUNT_NAME = 'kubernetes.io/service-account.name';
const ACCOUNT_UID = 'kubernetes.io/service-account.uid';

/** Signs what a Secret stores. */
export interface LegacyTokenSigner {
  /** Signs a token without expiry that is bound to the secret. */
  issueLegacy(account: ServiceAccount, secretName: string): string;
}

/**
 * Returns the complete `data` of the Secret, in base64. The CA is always the current one; a namespace and a token that the
 * Secret already has are kept.
 */
function wantedData(
  secret: Secret,
  account: ServiceAccount,
  options: { readonly signer: LegacyTokenSigner; readonly rootCaPem: string },
): Record<string, string> {
  const data: Record<string, string> = { ...secret.data };
  const encode = (text: string): string => Buffer.from(text).toString('base64');
  data['ca.crt'] = encode(options.rootCaPem);
  data['namespace'] ||= encode(secret.metadata.namespace ?? '');
  data['token'] ||= encode(options.signer.issueLegacy(account, secret.metadata.name ?? ''));
  return data;
}

/** Builds the controller for one signing key and CA. */
export function tokenSecrets(options: {
  readonly signer: LegacyTokenSigner;
  readonly rootCaPem: string;
}): RunController {
  return (environment, signal) => {
    const { client, informers } = environment;
    const accounts = informers.for(serviceAccounts);
    const tokens = informers.for(secrets, { fieldSelector: `type=${TOKEN_SECRET_TYPE}` });
    tokens.addIndex('account', ({ metadata }) => [
      `${metadata.namespace}/${metadata.annotations?.[ACCOUNT_NAME] ?? ''}`,
    ]);
    const loop = new ReconcileLoop(environment, {
      workers: environment.options.concurrentServiceAccountTokenSyncs,
      reconcile: async (key) => {
        const { namespace, name } = splitKey(key);
        const secret = tokens.get(namespace, name);
        if (secret === undefined || secret.metadata.deletionTimestamp !== undefined) return;
        const { [ACCOUNT_NAME]: accountName = '', [ACCOUNT_UID]: uid = '' } = secret.metadata.annotations ?? {};
        if (accountName === '') return;
        const account =
          accounts.get(namespace, accountName) ??
          (await getOrNone(() => client.get(serviceAccounts, namespace, accountName)));
        if (account === undefined || (uid !== '' && uid !== account.metadata.uid)) {
          const secretUid = secret.metadata.uid;
          await getOrNone(() =>
            client.delete(
              secrets,
              namespace,
              name,
              secretUid === undefined ? {} : { preconditions: { uid: secretUid } },
            ),
          );
          return;
        }
        const data = wantedData(secret, account, options);
        const complete =
          Object.entries(data).every(([field, value]) => ownMember(secret.data, field) === value) &&
          uid === account.metadata.uid;
        if (complete) return;
        const annotations = {
          ...secret.metadata.annotations,
          [ACCOUNT_NAME]: accountName,
          [ACCOUNT_UID]: account.metadata.uid ?? '',
        };
        await client.update(secrets, { ...secret, metadata: { ...secret.metadata, annotations }, data });
      },
    });
    tokens.addHandler({ add: loop.enqueue, update: (_, secret) => loop.enqueue(secret) });
    const accountChanged = (account: ServiceAccount): void => {
      for (const secret of tokens.byIndex('account', `${account.metadata.namespace}/${account.metadata.name}`))
        loop.enqueue(secret);
    };
    accounts.addHandler({ add: accountChanged, delete: accountChanged });
    return loop.run(signal, accounts, tokens);
  };
}

async function getOrNone<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}
