; A recurrent language model: a hidden row for each layer in place of attention, of which every token keeps a share and
; replaces the rest.  Many positions at once give what one after the other do.
; After "Mamba", Gu and Dao 2023, and "Griffin", De et al. 2024, with the gates' least form.
; lispgpt run examples/recurrence.lisp --checkpoint W.safetensors --prompt-tokens 1,2,3
(require nn)

(config vocab 512  context 1024  layers 2  width 64  hidden 128)

(weights
  (wte [vocab width] bf16)
  (per layers
    (norm-w [width] {:init 1})
    (keep-w [hidden width] bf16) (keep-b [hidden])
    (new-w [hidden width] bf16)
    (gate-w [hidden width] bf16)
    (out-w [width hidden] bf16))
  (normf-w [width] {:init 1}))

(state (memory [layers hidden]))

(defn log-sigmoid [x] (elementwise (fn [v] (- (min v 0.0) (log (+ 1.0 (exp (- (abs v))))))) x))

; keep [batch length hidden] are logarithms of the shares that stay, new what is put in their place: after a position t,
; the memory is exp(keep_1 + … + keep_t) of the one before, and exp(keep_k+1 + … + keep_t) of each new_k so far
(defn remember [keep new l]
  (let [[n length count] (shape keep)
        so-far (tensor [t length k length] (select (<= k t) 1.0 0.0))
        sums (contract [b t c] keep [b k c] so-far [t k])
        shares (tensor [b n t length k length c count]
                 (select (<= k t) (exp (- (at sums b t c) (at sums b k c))) 0.0))
        fresh (contract [b t c] shares [b t k c] new [b k c])
        old (read-state (memory l))
        all (tensor [b n t length c count] (+ (* (exp (at sums b t c)) (at old b c)) (at fresh b t c)))]
    (write-state (memory l) (slice all [0 (- length 1) 0] [n nil count]))
    all))

(defn layer [x l]
  (let [n (dim x 0)
        h (rms-norm x (norm-w l) 1e-5)
        by-text (fn [y] (reshape y [(batch) (/ n (batch)) hidden]))
        keep (log-sigmoid (linear h (keep-w l) (keep-b l)))
        new (* (- 1.0 (exp keep)) (linear h (new-w l)))
        memory (reshape (remember (by-text keep) (by-text new) l) [n hidden])]
    (+ x (linear (* memory (silu (linear h (gate-w l)))) (out-w l)))))

(entry logits [tokens positions] {:shapes [{positions 1} {positions 16}]}
  (let [x (fold layer (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w 1e-5) wte)))

(generate logits {:max-new-tokens 32 :temperature 0.8})
