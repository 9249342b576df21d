/** Why a pod is not admitted, as its status shows it. */
export interface Refusal {
  readonly reason: string;
  readonly message: string;
}
