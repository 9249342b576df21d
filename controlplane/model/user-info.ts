/** Formats a user as in the status of reviews. */
import type { UserInfo } from '../authentication/authentication.ts';

export function userInfoJson(user: UserInfo): Record<string, unknown> {
  return {
    ...(user.name === '' ? {} : { username: user.name }),
    ...(user.uid === undefined || user.uid === '' ? {} : { uid: user.uid }),
    ...(user.groups.length === 0 ? {} : { groups: user.groups }),
    ...(user.extra === undefined || Object.keys(user.extra).length === 0 ? {} : { extra: user.extra }),
  };
}
