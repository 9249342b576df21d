/** Implements SelfSubjectReview: the caller's user after authentication and impersonation. */
import { formatTime, type Clock } from '../../../api/machinery/clock.ts';
import type { Reviewer } from './review-rest.ts';
import { userInfoJson } from '../../model/user-info.ts';

/** Creates the reviewer that returns the caller's user. Needs no decision: every authenticated client may ask who it is. */
export function selfSubjectReviewer(clock: Clock): Reviewer {
  return ({ object, user }) => ({
    apiVersion: object.apiVersion ?? '',
    kind: object.kind ?? '',
    metadata: { creationTimestamp: formatTime(clock.now()) },
    status: { userInfo: userInfoJson(user) },
  });
}
