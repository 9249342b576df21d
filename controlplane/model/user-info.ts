/** Defines the user of a request, and how reviews, webhooks and audit events show it. */

/** An authenticated user. Absent and empty members mean the same. */
export interface UserInfo {
  readonly name: string;
  readonly uid?: string;
  readonly groups: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

/** Returns the `UserInfo` of authentication.k8s.io/v1, without empty fields. */
export function userInfoJson(user: UserInfo): Record<string, unknown> {
  return {
    ...(user.name === '' ? {} : { username: user.name }),
    ...(user.uid === undefined || user.uid === '' ? {} : { uid: user.uid }),
    ...(user.groups.length === 0 ? {} : { groups: user.groups }),
    ...(user.extra === undefined || Object.keys(user.extra).length === 0 ? {} : { extra: user.extra }),
  };
}
