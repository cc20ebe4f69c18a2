; "Jamba: A Hybrid Transformer-Mamba Language Model", Lieber et al. 2024: layers of Mamba, and every so many one that
; attends, without positions; every second has experts.  lispgpt run FOLDER --prompt "Once upon a time"
(require experts scan)
(config vocab 65536  context 262144  layers 32  heads 32  kv-heads 8  width 4096  hidden 14336  experts 16  top 2
        head-width (quot width heads)  epsilon 1e-6  tied-head false  attends-every 8  attends-from 4  weight-type bf16
        experts-every 2  experts-from 1  expand 2  states 16  taps 4  rank 256  biased false  conv-biased true
        cache-type (usual-cache-type weight-type))
(hugging-face ["jamba"] {:prefix "model."  :usual true  :requires {"hidden_act" "silu"}}
  (config experts "num_experts"  top "num_experts_per_tok"  attends-every "attn_layer_period"
          attends-from "attn_layer_offset"  experts-every "expert_layer_period"  experts-from "expert_layer_offset"
          expand "mamba_expand"  states "mamba_d_state"  taps "mamba_d_conv"  rank "mamba_dt_rank"
          biased (optional "mamba_proj_bias")  conv-biased (optional "mamba_conv_bias"))
  (weights
    wte "embed_tokens.weight"  normf-w "final_layernorm.weight"  head-w "lm_head.weight"
    (per "layers.*." norm1-w "input_layernorm.weight"  norm2-w "pre_ff_layernorm.weight")
    (some "layers.*." qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      proj-w "self_attn.o_proj.weight"  in-w "mamba.in_proj.weight"  in-b "mamba.in_proj.bias"
      out-w "mamba.out_proj.weight"  out-b "mamba.out_proj.bias"  conv-w "mamba.conv1d.weight"
      conv-b "mamba.conv1d.bias"  x-w "mamba.x_proj.weight"  dt-w "mamba.dt_proj.weight"  dt-b "mamba.dt_proj.bias"
      a-log "mamba.A_log"  skip-w "mamba.D"  dt-norm-w "mamba.dt_layernorm.weight"  b-norm-w "mamba.b_layernorm.weight"
      c-norm-w "mamba.c_layernorm.weight"  router-w "feed_forward.router.weight"
      gates-w "feed_forward.experts.*.gate_proj.weight"  ups-w "feed_forward.experts.*.up_proj.weight"
      downs-w "feed_forward.experts.*.down_proj.weight"  gate-w "feed_forward.gate_proj.weight"
      up-w "feed_forward.up_proj.weight"  down-w "feed_forward.down_proj.weight")))
(def inner (* expand width))  (defn attends? [l] (= (mod l attends-every) attends-from))  (def untied (not tied-head))
(defn sparse? [l] (and (> experts 1) (= (mod l experts-every) experts-from)))
(weights (wte [vocab width] weight-type)  (normf-w [width] {:init 1})  (when untied (head-w [vocab width] weight-type))
  (per layers (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1}))
  (per layers :where attends? (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type))
  (per layers :where (fn [l] (not (attends? l)))  (in-w [(* 2 inner) width] weight-type)
    (out-w [width inner] weight-type)  (conv-w [inner 1 taps])  (when biased (in-b [(* 2 inner)]) (out-b [width]))
    (when conv-biased (conv-b [inner]))  (x-w [(+ rank states states) inner] weight-type)
    (dt-w [inner rank] weight-type)  (dt-b [inner])  (skip-w [inner])  (a-log [inner states])
    (dt-norm-w [rank] {:init 1})  (b-norm-w [states] {:init 1})  (c-norm-w [states] {:init 1}))
  (per layers :where sparse? (router-w [experts width] weight-type)  (gates-w [experts hidden width] weight-type)
    (ups-w [experts hidden width] weight-type)  (downs-w [experts width hidden] weight-type))
  (per layers :where (fn [l] (not (sparse? l))) (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)
    (down-w [width hidden] weight-type)))
(state (per layers :where attends? (kv [batch 2 kv-heads context head-width] cache-type))
  (per layers :where (fn [l] (not (attends? l))) (before [batch (- taps 1) inner])  (memory [batch inner states])))
(defn attended [y l]
  (let [[q k v] (split-heads (linear y (qkv-w l)) head-width heads kv-heads)]
    (linear (attend q k v (kv l)) (proj-w l))))
(defn mixed-in [y l]
  (let [both (linear-if biased y (in-w l) (in-b l))
        x (convolved (columns-of both 0 inner) (conv-w l) (if conv-biased (conv-b l) 0.0) (before l))
        sizes (linear x (x-w l))  part (fn [start size norm] (rms-norm (columns-of sizes start size) norm epsilon))
        dt (linear (part 0 rank (dt-norm-w l)) (dt-w l) (dt-b l))
        [into out-of] [(part rank states (b-norm-w l)) (part (+ rank states) states (c-norm-w l))]
        y (selective x dt into out-of (a-log l) (skip-w l) (memory l))]
    (linear-if biased (* y (silu (columns-of both inner inner))) (out-w l) (out-b l))))
(entry logits [tokens positions]
  (let [mix (fn [y l] (if (attends? l) (attended y l) (mixed-in y l)))
        feed (fn [y l] (if (sparse? l) (mixture y (router-w l) (gates-w l) (ups-w l) (downs-w l) top false)
                         (swiglu y (gate-w l) (up-w l) (down-w l))))
        normed (fn [f x w l] (+ x (f (rms-norm x w epsilon) l)))
        layer (fn [x l] (normed feed (normed mix x (norm1-w l) l) (norm2-w l) l))
        x (last (fold layer (rows wte tokens) (range layers)))]
    (matmul-transposed (rms-norm x normf-w epsilon) (if tied-head wte head-w))))
(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
