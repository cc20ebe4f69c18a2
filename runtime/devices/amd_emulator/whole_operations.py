"""Operations written out here: their pseudocode leaves something out, or needs numbers wider than 64 bits."""

from __future__ import annotations

WHOLE_OPERATIONS = {
    # name → assignments to D0 and VCC, over the names that `numerics` has; TABLE is a number of the instruction
    "V_DIV_SCALE_F32": "D0, VCC = divide_scale(S0.view(f32), S1.view(f32), S2.view(f32)); D0 = D0.view(u32)",
    "V_PERM_B32": "D0 = permute_bytes(S0, S1, S2)",
    "V_BFREV_B32": "D0 = bit_reverse(S0)",
    "S_BREV_B32": "D0 = bit_reverse(S0)",
    "V_RNDNE_F32": "D0 = np.rint(S0.view(f32)).view(u32)",
    "V_MAD_U64_U32": "p = S0.astype(u64) * S1.astype(u64); D0 = p + S2; VCC = D0 < p",
    "V_MAD_CO_U64_U32": "p = S0.astype(u64) * S1.astype(u64); D0 = p + S2; VCC = D0 < p",
    "V_MAD_I64_I32": "p = S0.view(i32).astype(i64) * S1.view(i32).astype(i64) + S2.view(i64); D0 = p.view(u64); "
    "VCC = p < 0",
    "V_MAD_CO_I64_I32": "p = S0.view(i32).astype(i64) * S1.view(i32).astype(i64) + S2.view(i64); D0 = p.view(u64); "
    "VCC = p < 0",
    "S_FF1_I32_B32": "D0 = leading(S0, True).view(u32)", "S_FF1_I32_B64": "D0 = leading(S0, True).view(u32)",
    "S_CTZ_I32_B32": "D0 = leading(S0, True).view(u32)", "S_CTZ_I32_B64": "D0 = leading(S0, True).view(u32)",
    "S_CLZ_I32_U32": "D0 = leading(S0, False).view(u32)", "V_FFBL_B32": "D0 = leading(S0, True).view(u32)",
    "V_CTZ_I32_B32": "D0 = leading(S0, True).view(u32)", "V_CLZ_I32_U32": "D0 = leading(S0, False).view(u32)",
    "V_BITOP3_B32": "D0 = truth_table(S0, S1, S2, TABLE)",
    "V_BITOP3_B16": "D0 = truth_table(S0, S1, S2, TABLE) & u32(0xFFFF)",
    "V_CVT_PK_BF16_F32": "D0 = bf16_bits(S0.view(f32)) | bf16_bits(S1.view(f32)) << u32(16)",
    "V_PK_MOV_B32": "D0 = (S0 & u64(0xFFFFFFFF)) | S1 << u64(32)",
    "S_BITSET0_B32": "D0 = OLD & ~(u32(1) << (S0 & u32(31)))",
    "S_BITSET1_B32": "D0 = OLD | u32(1) << (S0 & u32(31))",
    "S_BITSET0_B64": "D0 = OLD & ~(u64(1) << (S0.astype(u64) & u64(63)))",
    "S_BITSET1_B64": "D0 = OLD | u64(1) << (S0.astype(u64) & u64(63))",
    "V_FFBH_U32": "D0 = leading(S0, False).view(u32)",
}  # fmt: skip
for _kind, _number in (("MAX", "larger"), ("MIN", "smaller")):
    for _name in (f"{_kind}_F32", f"{_kind}_NUM_F32"):
        for _prefix in ("V_", "S_", "V_DUAL_"):
            WHOLE_OPERATIONS[_prefix + _name] = f"D0 = {_number}(S0.view(f32), S1.view(f32)).view(u32)"
    for _prefix in ("V_", "S_"):
        _text = f"D0 = {_kind.lower()}imum(S0.view(f32), S1.view(f32)).view(u32)"
        WHOLE_OPERATIONS[f"{_prefix}{_kind}IMUM_F32"] = _text
